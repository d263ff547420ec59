"""Computes one step: flat tensors in, what was drawn for each row that reached its end out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
import torch
from torch import Tensor

from deployments.engine.attention.cpu import FEW
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.forward import Forward, Ints, StepInputs
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.sampling.logprobs import score
from deployments.engine.sampling.sampler import Draw, Sample, SamplingPipeline
from deployments.engine.tasks.batch import Rows
from deployments.engine.tasks.grammar_matcher import begin_masks
from deployments.engine.tasks.task import Task, make_task
from deployments.wire import GenerationRequest, TokenEvent, TokenLogprob
from kv.cache import KVCache


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rows of a step came to: the tokens drawn, and by place log-probabilities of the
    prompt's next tokens."""

    samples: Sequence[Sequence[Sample]]  # more than one of a row whose drafts were right
    prompt_logprobs: Mapping[int, Sequence[TokenLogprob]]

    def is_finite(self, place: int) -> bool:
        """Whether the model's output was, as far as anything was made of it."""
        drawn = all(one.token_id is not None or one.all_banned for one in self.samples[place])
        return drawn and not any(isnan(one.logprob) for one in self.prompt_logprobs.get(place, ()))


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was launched. A GPU may be computing it still."""

    rows: Rows
    drawing: Sequence[int]  # places
    draw: Draw | None
    prompt_logprobs: Mapping[int, Sequence[TokenLogprob]]

    @property
    def all_draw_one(self) -> bool:
        return [*self.drawing] == [*range(len(self.rows.tasks))]

    @torch.inference_mode()
    def land(self) -> Outcome:
        """What each row came to; no token for one that ends before its task's last token."""
        drawn = [] if self.draw is None else self.draw.samples()
        if self.all_draw_one:
            return Outcome([(one,) for one in drawn], self.prompt_logprobs)
        tasks = self.rows.tasks
        samples: list[list[Sample]] = [[] for _ in tasks]
        for place, sample in zip(self.drawing, drawn, strict=True):
            if _stands(samples[place], tasks[place]):
                samples[place].append(sample)
        return Outcome(samples, self.prompt_logprobs)


def _stands(before: Sequence[Sample], task: Task) -> bool:
    """Whether a draw is what follows: what was drawn `before` it is what was drafted."""
    n = len(before)
    return n == 0 or before[-1].token_id == task.tokens[task.n_tokens + n - 1]


class Runner:
    """Owns the model, or rank 0's share of it. Never decides what runs."""

    def __init__(
        self,
        forward: Forward,
        cache: KVCache,
        pipeline: SamplingPipeline,
        threads: int,
        ranks: Ranks | None = None,
    ) -> None:
        self._forward = forward
        self._cache = cache
        self._pipeline = pipeline
        self._threads = threads
        self._ranks = ranks

    def start(self) -> None:
        """To be called on the thread that will `launch`, which then has the arithmetic's threads.

        Raises UnsupportedModelError for a model that can't be served.
        """
        torch.set_num_threads(self._threads)
        device = self._cache.storage.k.device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # of this thread; kernels and streams go by it
        try:
            # A prompt's chunk is computed otherwise than a single token, and a few.
            for n_tokens in (1, min(FEW + 1, self._cache.shape.max_tokens - 1)):
                self.probe(n_tokens)
        except Exception as error:
            raise UnsupportedModelError(f"the engine can't run this model: {error}") from error
        if self._ranks is None:
            shape = self._cache.shape
            self._forward.record(shape.max_tasks, shape.max_tokens)

    def probe(self, n_tokens: int = 1) -> None:
        """Computes a token behind as many, and raises what the model raises; needs pages for them
        and a free task."""
        request = GenerationRequest(request_id="probe", prompt_ids=(0,) * n_tokens)
        task = make_task(request.request_id, request, _Nowhere(), frozenset(), n_tokens + 1)
        self._cache.allocate(task.id, [], task.n_tokens, spare=0)
        self._cache.extend(task.id, task.n_tokens)
        try:
            self.launch(Rows([task], [n_tokens])).land()
        finally:
            self._cache.free(task.id)

    @torch.inference_mode()
    def launch(self, rows: Rows) -> Flight:
        """Begins a step; what it raises may come when it lands."""
        drawing, scored = rows.drawing(), rows.scored()
        tasks = [rows.tasks[place] for place in drawing]
        begin_masks([task.grammar for task in tasks if task.grammar is not None])
        ahead = _ahead(drawing)
        logits = self._compute(self._inputs(rows, drawing, ahead, scored))
        draw = None
        if drawing:
            draw = self._pipeline.draw(logits[: len(drawing)].float(), tasks, ahead)
        scores = self._score(logits[len(drawing) :], rows, scored) if scored else {}
        return Flight(rows, drawing, draw, scores)

    @torch.inference_mode()
    def launch_behind(self, flight: Flight, places: Sequence[int]) -> Flight:
        """Begins the next step of some rows of one in flight, all of which draw, all of whose tasks
        are blind (`is_blind`). Their pages hold one token more already."""
        assert flight.draw is not None
        rows = Rows([flight.rows.tasks[place] for place in places], [1] * len(places))
        drawn = flight.draw.token_ids
        if len(places) < len(drawn):
            drawn = drawn[self._forward.tensor(np.array(places, dtype=np.int64))]
        logits = self._forward.logits(self._inputs_behind(rows.tasks, drawn))
        draw = self._pipeline.draw(logits.float(), rows.tasks, np.ones(len(places), dtype=np.int64))
        return Flight(rows, range(len(places)), draw, {})

    def _inputs_behind(self, tasks: Sequence[Task], drawn: Tensor) -> StepInputs:
        known = np.array([task.n_tokens for task in tasks], dtype=np.int64)
        return StepInputs(
            token_ids=np.zeros_like(known),
            positions=known,
            total_len=known + 1,
            new_len=np.ones_like(known),
            page_table=self._cache.table.rows([task.id for task in tasks]),
            kept=np.arange(len(tasks)),
            uncleared=self._cache.take_uncleared(),
            drawn=drawn,
        )

    def _inputs(
        self, rows: Rows, drawing: Sequence[int], ahead: Ints, scored: Mapping[int, int]
    ) -> StepInputs:
        """Kept are the tokens that something is drawn behind, then all that are to be scored."""
        n = np.array(rows.n, dtype=np.int64)
        start = np.array([task.n_computed for task in rows.tasks], dtype=np.int64)
        newest = np.array([task.n_tokens for task in rows.tasks], dtype=np.int64) - 1
        ends = n.cumsum()
        firsts = start - ends + n  # of row i, position p is at p - firsts[i]
        return StepInputs(
            token_ids=_token_ids(rows, words_only=len(drawing) == len(rows.tasks) == ends[-1]),
            positions=np.arange(ends[-1]) + np.repeat(firsts, n),
            total_len=start + n,
            new_len=n,
            page_table=self._cache.table.rows([task.id for task in rows.tasks]),
            kept=np.concatenate(
                [(newest - firsts)[drawing] + ahead, *_places(rows, scored, firsts)]
            ),
            uncleared=self._cache.take_uncleared(),
        )

    def _compute(self, step: StepInputs) -> Tensor:
        if self._ranks is None:
            return self._forward.logits(step)
        with self._ranks.in_step(step.pack()):
            return self._forward.logits(step)

    def _score(
        self, logits: Tensor, rows: Rows, scored: Mapping[int, int]
    ) -> dict[int, list[TokenLogprob]]:
        scores: dict[int, list[TokenLogprob]] = {}
        for place, n in scored.items():
            task = rows.tasks[place]
            first = len(task.prompt_logprobs) + 1
            ids = self._forward.tensor(task.tokens[first : first + n])
            scores[place] = list(score(logits[:n], ids, task.request.prompt_logprobs or 0))
            logits = logits[n:]
        return scores


def _ahead(drawing: Sequence[int]) -> Ints:
    """How many drafted tokens stand before each draw."""
    places = np.array(drawing, dtype=np.int64)
    return np.arange(len(places)) - np.searchsorted(places, places)


def _token_ids(rows: Rows, *, words_only: bool) -> Ints:
    if words_only:  # each row is its task's newest token
        return np.array([task.newest for task in rows.tasks], dtype=np.int64)
    return np.concatenate(
        [
            task.tokens[task.n_computed : task.n_computed + n]
            for task, n in zip(rows.tasks, rows.n, strict=True)
        ]
    )


def _places(rows: Rows, scored: Mapping[int, int], firsts: Ints) -> Iterator[Ints]:
    """Where in the step the positions to score are."""
    for place, n in scored.items():
        first = len(rows.tasks[place].prompt_logprobs)
        yield np.arange(first, first + n) - firsts[place]


class _Nowhere:
    """A mailbox that nobody reads."""

    loop = None

    def put(self, event: TokenEvent) -> None:
        pass
