"""The engine as a library, without Ray: text in, text out, from any thread or event loop."""

import secrets
import uuid
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from deployments.contract.errors import Refused
from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Pooling, PoolParams
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.generate_result import GenerateResult
from deployments.engine.limits import MODEL_DRAFT_TOKENS, ON_CPU, ON_GPU, EngineLimits
from deployments.engine.loading.draft_check import Drafting, check_draft_files, load_draft
from deployments.engine.loading.draft_heads.mtp_files import load_mtp
from deployments.engine.loading.fingerprint import NO_IDENTITY, fingerprint, identify
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer
from deployments.engine.loading.media.speech import speech_rules, split_speech
from deployments.engine.model_card import (
    default_sampling,
    end_token_ids,
    generation_config,
    make_card,
)
from deployments.engine.outputs.vectors import unpack
from deployments.text.tokens.detokenizer import Detokenizer
from deployments.text.tokens.tokenizer import TextTokenizer

EMBEDDING = PoolParams()


class GenerateOptions(TypedDict, total=False):
    """The fields of SamplingParams and GenerationRequest that `generate` takes."""

    max_tokens: int | None
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    ignore_eos: bool
    grammar: str
    priority: int


class InferenceEngine:
    """A model, its tokenizer and the loop that serves them. Shut it down, or use it with `with`."""

    def __init__(
        self,
        model: LoadedModel | PreTrainedModel | str,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        name: str = "model",
        dtype: torch.dtype | None = None,
        device: str = "cpu",
        limits: EngineLimits | None = None,
        dialect: str = "",
        draft: str | None = None,
        spec_type: Literal["mtp"] | None = None,
    ) -> None:
        """`model` is a path or a hub id, from which model and tokenizer are loaded; or a loaded
        model, which belongs to the engine from then on, and `tokenizer` is its own. `draft` is the
        path or hub id of a small model with the same tokenizer or of an EAGLE-3 head of this model,
        which drafts. With `spec_type` the MTP head in the model's own files does.

        Raises ValueError for limits that can't be kept or a missing tokenizer,
        UnsupportedModelError for a model that can't be served, OSError where there is none.
        """
        if draft is not None and spec_type is not None:
            raise ValueError("draft and spec_type: one of the two drafts")
        path, has_draft = model, draft is not None or spec_type is not None
        if isinstance(model, str):
            tokenizer = tokenizer or load_tokenizer(model)
            loaded = load_model(model, dtype=dtype, device=device)
        else:
            given = model if isinstance(model, LoadedModel) else LoadedModel(model)
            loaded = split_speech(given)
        if tokenizer is None:
            raise ValueError("a model given as an object needs its tokenizer")
        if draft is not None:
            check_draft_files(draft, tokenizer)
        ends = end_token_ids(loaded.model, tokenizer)
        if limits is None:
            limits = ON_GPU if loaded.device.type == "cuda" else ON_CPU
            limits = replace(limits, draft_tokens=MODEL_DRAFT_TOKENS) if has_draft else limits
        drafting = _drafting(path, loaded, draft, spec_type)
        identity = NO_IDENTITY
        if limits.outlives_engines:
            weights = fingerprint(loaded.model, beside=loaded.parts_beside())
            files = path if isinstance(path, str) else None
            identity = identify(weights, files, () if drafting is None else drafting.parts())
        self.core = EngineCore(
            loaded,
            ends,
            limits,
            lambda: self.card.tokenizer_json,
            draft=drafting,
            identity=identity,
        )
        sampling = default_sampling(generation_config(loaded.model))
        self.card: ModelCard = make_card(
            name,
            self.core,
            tokenizer,
            dialect,
            sampling,
            fingerprint(loaded.model, beside=loaded.parts_beside()),
            speech_rules(loaded, tokenizer),
        )
        self._tokenizer = TextTokenizer(self.card)

    @overload
    def generate(
        self, prompt: str, stream: Literal[False] = False, **options: Unpack[GenerateOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: list[str], stream: Literal[False] = False, **options: Unpack[GenerateOptions]
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompt: str, stream: Literal[True], **options: Unpack[GenerateOptions]
    ) -> Generator[str, None, None]: ...
    @overload
    def generate(
        self, prompt: list[str], stream: Literal[True], **options: Unpack[GenerateOptions]
    ) -> Generator[tuple[int, str], None, None]: ...

    def generate(
        self, prompt: str | list[str], stream: bool = False, **options: Unpack[GenerateOptions]
    ) -> str | list[str] | Generator[str, None, None] | Generator[tuple[int, str], None, None]:
        """Continues one prompt or several. Returns their texts, or a generator: of texts for one
        prompt, of (number of the prompt, text) for several. Leaving a generator ends the
        generation. From any thread.

        Raises Refused for a prompt that can't be served, a generator when it is read.
        """
        if isinstance(prompt, str):
            return self.generate_with_request(self.request(prompt, **options), stream)
        pieces = self._pieces([self.request(prompt_text, **options) for prompt_text in prompt])
        if stream:
            return pieces
        texts = [""] * len(prompt)
        for index, text in pieces:
            texts[index] += text
        return texts

    def generate_with_request(
        self, request: GenerationRequest, stream: bool = False
    ) -> str | Generator[str, None, None]:
        """Like `generate`, for a request whose prompt is ids already."""
        pieces = (text for _, text in self._pieces([request]))
        return pieces if stream else "".join(pieces)

    def submit(
        self,
        prompt: str | list[str],
        cb: Callable[[str], object] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> GenerateResult:
        """Like `generate`, for a caller that has something else to do meanwhile: a thread of its
        own reads the texts, and calls `cb(token)` with each piece of text.

        The result raises what the generation raises, to who waits for it.
        """
        prompts = [prompt] if isinstance(prompt, str) else prompt
        requests = [self.request(prompt_text, **options) for prompt_text in prompts]
        return GenerateResult(len(requests), self._pieces(requests), cb)

    def embed(
        self, texts: str | list[str], *, params: PoolParams = EMBEDDING, prompt_name: str = ""
    ) -> NDArray[np.float32]:
        """The vectors of some texts [texts, size]. `prompt_name` is of what goes before each, of
        those in the model's files; "" for their default. From any thread.

        Raises Refused for a text that can't be served, KeyError for an unknown prompt.
        """
        if params.pooling is Pooling.TOKEN:
            raise ValueError("a vector for each token is no embedding: read core.run")
        answers = self.card.answers
        name = prompt_name or answers.default_prompt
        prompt = dict(answers.prompts)[name] if name else ""
        requests = [
            self._pool_request(prompt + text, params)
            for text in ([texts] if isinstance(texts, str) else texts)
        ]
        vectors: dict[int, NDArray[np.float32]] = {}
        for index, event in self.core.run(requests):
            if event.error is not None:
                raise Refused(event.error)
            assert event.vectors is not None
            vectors[index] = unpack(event.vectors)[0]
        return np.stack([vectors[index] for index in range(len(requests))])

    def _pool_request(self, text: str, params: PoolParams) -> GenerationRequest:
        ids = self._tokenizer.encode(text, add_special_tokens=True)
        return GenerationRequest(
            request_id=uuid.uuid4().hex, prompt_ids=tuple(ids), max_tokens=0, output=params
        )

    async def generate_async(
        self, prompt: str, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[str, None]:
        """Pieces of text as they come, on an event loop. Leaving the generator ends the generation.

        Raises Refused for a prompt that can't be served.
        """
        detokenizer = Detokenizer(self._tokenizer)
        events = self.core.stream(self.request(prompt, **options))
        try:
            async for event in events:
                if text := _text(detokenizer, event):
                    yield text
        finally:
            await events.aclose()

    def request(self, prompt: str, **options: Unpack[GenerateOptions]) -> GenerationRequest:
        """A request for a prompt of text, sampled as the model's makers suggest by default."""
        defaults = self.card.sampling
        return GenerationRequest(
            request_id=uuid.uuid4().hex,
            prompt_ids=tuple(self._tokenizer.encode(prompt, add_special_tokens=True)),
            sampling=SamplingParams(
                temperature=options.get("temperature", defaults.temperature),
                top_k=options.get("top_k", defaults.top_k),
                top_p=options.get("top_p", defaults.top_p),
                min_p=options.get("min_p", defaults.min_p),
                repetition_penalty=options.get("repetition_penalty", defaults.repetition_penalty),
                presence_penalty=options.get("presence_penalty", 0.0),
                frequency_penalty=options.get("frequency_penalty", 0.0),
                seed=options.get("seed", secrets.randbits(63)),
            ),
            max_tokens=options.get("max_tokens"),
            min_tokens=options.get("min_tokens", 0),
            ignore_eos=options.get("ignore_eos", False),
            grammar=options.get("grammar", ""),
            priority=options.get("priority", 0),
        )

    def get_stats(self) -> dict[str, float]:
        """The fields of EngineStats by name, from any thread."""
        return self.core.stats().as_dict()

    def shutdown(self) -> None:
        """Ends every generation and the engine's thread; idempotent."""
        self.core.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()

    def _pieces(self, requests: list[GenerationRequest]) -> Generator[tuple[int, str], None, None]:
        detokenizers = [Detokenizer(self._tokenizer) for _ in requests]
        events = self.core.run(requests)
        try:
            for index, event in events:
                if text := _text(detokenizers[index], event):
                    yield index, text
        finally:
            events.close()


def _drafting(
    path: object, loaded: LoadedModel, draft: str | None, spec_type: str | None
) -> Drafting | None:
    if spec_type is None:
        return None if draft is None else load_draft(draft, loaded)
    if not isinstance(path, str):
        raise ValueError("spec_type: the head is in the model's files, whose path is to be said")
    return load_mtp(path, loaded)


def _text(detokenizer: Detokenizer, event: TokenEvent) -> str:
    """The text that an event adds. Raises Refused when it ends in one."""
    if event.error is not None:
        raise Refused(event.error)
    ids = event.token_ids
    if event.stop_token_id is not None:
        ids = ids[:-1]
    text: str = detokenizer.push(ids)
    return text if event.finish_reason is None else text + detokenizer.flush()
