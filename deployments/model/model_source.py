"""Makes a model's engines from its settings: the first one, and one after each sleep.

All of it blocks, and imports torch.
"""

import ctypes
import gc
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from weakref import ref

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as bars

from deployments.contract.model_card import ModelCard
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.draft_check import Drafting, check_draft_files, load_draft
from deployments.engine.loading.draft_heads.head_config import head_fields
from deployments.engine.loading.draft_heads.mtp_files import check_mtp_files, load_mtp
from deployments.engine.loading.fingerprint import WeightsIdentity, fingerprint, identify
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_tokenizer, model_files
from deployments.engine.loading.media.speech import speech_rules
from deployments.engine.model_card import (
    default_sampling,
    end_token_ids,
    generation_config,
    make_card,
)
from deployments.engine.needs.remote_pages import PullPages
from deployments.engine.parallel.ranks import Ranks
from deployments.model.hub_download import bring_weights, lacks_weights, with_local_files
from deployments.model.load_progress import ReportProgress
from deployments.model.metrics import GpuMemory
from deployments.model.rank_actors import start_ranks
from deployments.model.settings import ModelSettings, check_settings
from deployments.model.start_log import log_engine, log_tools, log_unused_head
from deployments.model.weights import adapters_of, device_of, load_weights
from deployments.model.weights_form import weights_form

T = TypeVar("T")
WEIGHTS_BAR = "Loading weights"  # transformers' name of its progress bar


class ModelSource:
    """Starts and releases engines of one model, one at a time; implements `sleeper.EngineSource`.

    Raises OSError, ValueError or UnsupportedModelError when the model can't be served.
    """

    card: ModelCard  # from the first start on

    def __init__(
        self, settings: ModelSettings, report: ReportProgress, pull: PullPages | None = None
    ) -> None:
        """`pull` pulls pages from other replicas; None: there are none."""
        check_settings(settings)
        self._pull = pull
        self._settings = settings
        self._gone = ""  # what an error says when the model's own path is no longer there
        self._report = report
        self._device = device_of(settings)
        weights = settings.sleep_weights or ("host" if can_keep_on_host(settings) else "drop")
        self._keeps_weights = settings.sleep_idle_s is not None and weights == "host"
        self._kept: LoadedModel | None = None
        self._kept_draft: Drafting | None = None
        self._fingerprint = ""  # of the weights that were loaded last
        self._large: list[ref[object]] = []  # objects that have to be freed with the engine
        self._began = 0.0  # the last start

    def start(self) -> EngineCore:
        self._began = time.perf_counter()
        core = self._restart() if self._large else self._start()
        self._report("engine", 1.0)
        return core

    def release(self) -> None:
        for kept in (self._kept, self._kept_draft):
            if kept is not None:
                kept.to("cpu")
        release_memory(self._large)

    def gpu_memory(self) -> GpuMemory | None:
        if self._device == "cpu":
            return None
        return GpuMemory(
            used=torch.cuda.memory_reserved(),
            total=torch.cuda.get_device_properties().total_memory,
        )

    def _start(self) -> EngineCore:
        settings = self._settings = with_local_files(self._settings, self._report)
        if os.path.exists(settings.path):
            kind = "folder" if os.path.isdir(settings.path) else "file"
            self._gone = f"the {kind} {settings.path} is gone"
        tokenizer = load_tokenizer(settings.path)  # first, because a broken one shows soon
        if settings.draft_model is not None:
            check_draft_files(settings.draft_model, tokenizer)
        if settings.spec_type is not None:
            check_mtp_files(settings.path)
        with self._model() as (loaded, ranks):
            core = self._engine(loaded, ranks, end_token_ids(loaded.model, tokenizer))
        sampling = settings.sampling.over(default_sampling(generation_config(loaded.model)))
        self.card = make_card(
            settings.name,
            core,
            tokenizer,
            settings.dialect,
            sampling,
            self._fingerprint,
            speech_rules(loaded, tokenizer),
            parses_special=settings.parse_special_in_messages,
            unseen_media=settings.unseen_media,
            weights=weights_form(settings),
        )
        log_tools(self.card)
        if not settings.has_draft and settings.tensor_parallel == 1:
            log_unused_head(settings.name, settings.path, loaded)
        return core

    def _restart(self) -> EngineCore:
        """Raises ValueError when the files are no longer those that the card describes, OSError
        when they are gone.
        """
        if self._kept is None and self._gone and not os.path.exists(self._settings.path):
            # The hub would be asked for it, for half a minute where there is none.
            raise FileNotFoundError(self._gone)
        before = self._fingerprint
        with self._model() as (loaded, ranks):
            if self._fingerprint != before:
                raise ValueError("its files are another model's than before")
            return self._engine(loaded, ranks, frozenset(self.card.eos_token_ids))

    def _engine(
        self, loaded: LoadedModel, ranks: Ranks | None, end_token_ids: frozenset[int]
    ) -> EngineCore:
        self._report("engine", 0.0)
        limits, draft = engine_limits(self._settings), self._draft(loaded)
        core = EngineCore(
            loaded,
            end_token_ids,
            limits,
            lambda: self.card.tokenizer_json,
            ranks,
            draft,
            self._identity(draft),
            self._pull,
        )
        log_engine(self._settings.name, loaded, core, time.perf_counter() - self._began)
        self._large = [ref(core.cache.storage)]
        if self._keeps_weights:
            self._kept, self._kept_draft = loaded, draft
        else:
            parts = [*loaded.parts(), *(() if draft is None else draft.parts())]
            self._large += [ref(part) for part in parts]
        return core

    def _identity(self, draft: Drafting | None) -> WeightsIdentity:
        outlives = self._settings.limits.outlives_engines
        drafts = () if draft is None else (*draft.parts(),)
        return identify(self._fingerprint, self._settings.path if outlives else None, drafts)

    def _draft(self, loaded: LoadedModel) -> Drafting | None:
        settings = self._settings
        if settings.has_draft and self._kept_draft is not None:
            return self._kept_draft.to(self._device)
        if settings.spec_type is not None:
            return load_mtp(settings.path, loaded)
        return None if settings.draft_model is None else load_draft(settings.draft_model, loaded)

    @contextmanager
    def _model(self) -> Iterator[tuple[LoadedModel, Ranks | None]]:
        """The weights, and the ranks that share them. The ranks stop if the block fails."""
        ranks = start_ranks(self._settings) if self._settings.tensor_parallel > 1 else None
        try:
            yield self._weights(ranks), ranks
        except BaseException:
            if ranks is not None:
                ranks.stop()
            raise

    def _weights(self, ranks: Ranks | None) -> LoadedModel:
        if self._kept is not None:
            return self._kept.to(self._device)
        self._bring_weights()
        self._report("weights", 0.0)
        with weights_progress(self._report):
            return load_weights(self._settings, ranks, self._take_fingerprint, self._report_placed)

    def _bring_weights(self) -> None:
        """Downloads what transformers would download as it loads, unless it can't be served."""
        models = (self._settings.path, self._settings.draft_model)
        for model in filter(None, models):
            if lacks_weights(model):
                if head_fields(model) is None:
                    check_supported(model_files(model).config())
                bring_weights(model, self._report)

    def _take_fingerprint(self, model: PreTrainedModel) -> None:
        settings = self._settings
        self._fingerprint = fingerprint(
            model, adapters_of(settings), settings.quantization, settings.limits.kv_dtype
        )

    def _report_placed(self, share: float) -> None:
        self._report("device", share)


def engine_limits(settings: ModelSettings) -> EngineLimits:
    """A replica with a part of a GPU takes the same part of its memory."""
    part = min(1.0, settings.num_gpus or 1.0)
    limits = settings.limits
    return replace(limits, gpu_memory_utilization=limits.gpu_memory_utilization * part)


def can_keep_on_host(settings: ModelSettings) -> bool:
    """Whether the weights can stay in host memory during a sleep."""
    return bool(settings.num_gpus) and settings.tensor_parallel == 1


@contextmanager
def weights_progress(report: ReportProgress) -> Iterator[None]:
    """While transformers reads weights, `report` gets what would move its progress bar."""

    def watched(factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if args and isinstance(args[0], Collection) and options.get("desc") == WEIGHTS_BAR:
            return with_progress(args[0], report)
        return factory(*args, **options)

    before = bars.set_tqdm_hook(watched)
    try:
        yield
    finally:
        bars.set_tqdm_hook(before)


def with_progress(items: Collection[T], report: ReportProgress) -> Iterator[T]:
    for n, item in enumerate(items):
        report("weights", n / len(items))
        yield item
    report("weights", 1.0)


def release_memory(large: Iterable[ref[object]]) -> None:
    """Returns unreferenced memory to the device and to the operating system."""
    if any(reference() is not None for reference in large):  # a reference cycle holds it
        collect_garbage()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def collect_garbage() -> None:
    """Looks at all objects. No other thread runs meanwhile, for up to a second."""
    frozen = gc.get_freeze_count()  # Serve may have frozen all objects after the first load
    if frozen:
        gc.unfreeze()
    gc.collect()
    if frozen:
        gc.freeze()
