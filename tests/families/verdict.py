"""A verdict on a type of models: the engine's greedy tokens beside transformers' alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from deployments.contract.requests import SamplingParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.fused.fusing import is_fused
from tests.engine.drive import Outcome, engine, random_ids, request, roomy
from tests.families.tiny import tiny_model

N_NEW = 12
SAMPLING = SamplingParams(temperature=0, logprobs=0)
LONG = random_ids(45, seed=1)
# The second begins as the first one, the last one is its first pages.
PROMPTS = (LONG, LONG[:30] + random_ids(9, seed=2), random_ids(18, seed=3), LONG[:16])
MAX_ERROR = 2e-3  # of a log-probability; either of two tokens that differ by less may be drawn
BY_PASSES = "as by passes over all tokens; `generate` gives others with its cache, or fails"
FUSED, ROW_BY_ROW = "fused", "row by row"
PAGE_SIZE = 4
# Pages that are too few for two of the prompts and what follows them, as parts of those of the
# longest one: where tokens stay, and where they are freed out of a window.
FEW_PAGES = (1.87, 1.5, 1.27, 1.12, 1.0)


class Kind(StrEnum):
    SERVED = "served"
    REFUSED = "refused"
    DIFFERENT = "different"
    NO_REFERENCE = "no reference"


@dataclass(frozen=True)
class Verdict:
    """`why` says what is refused, differs, or fails without the engine."""

    model_type: str
    kind: Kind
    why: str = ""


@dataclass(frozen=True)
class Reference:
    """The tokens [N_NEW] that transformers draws behind one prompt.

    `logprobs` are log-probabilities [N_NEW, vocab].
    """

    tokens: tuple[int, ...]
    logprobs: Tensor
    is_by_passes: bool = False

    def difference(self, found: Outcome) -> str:
        """ "" for the same tokens, up to one that is tied."""
        if found.error is not None:
            return found.error.message
        for at, (drawn, expected) in enumerate(zip(found.logprobs, self.tokens, strict=True)):
            error = abs(drawn.logprob - float(self.logprobs[at, drawn.token_id]))
            if not error < MAX_ERROR:
                return f"the log-probability of token {at + 1} of {N_NEW} differs by {error:.2g}"
            if drawn.token_id != expected:
                gap = float(self.logprobs[at, expected] - self.logprobs[at, drawn.token_id])
                return "" if gap < MAX_ERROR else f"token {at + 1} of {N_NEW} is another one"
        return ""


def reference(model: PreTrainedModel, prompt: tuple[int, ...]) -> Reference:
    """Continues a prompt by `generate`.

    Repeated passes over all tokens do it where `generate` fails, or its cache gives other results.
    """
    try:
        tokens, logprobs = _generated(model, prompt)
        whole = _pass(model, (*prompt, *tokens))[len(prompt) - 1 : -1]
        if torch.allclose(logprobs, whole, atol=1e-3):
            return Reference(tokens, logprobs)
    except Exception:  # of any model's code; it may run without a cache
        pass
    tokens = ()
    for _ in range(N_NEW):
        logprobs = _pass(model, prompt + tokens)
        tokens += (int(logprobs[-1].argmax()),)
    return Reference(tokens, _pass(model, prompt + tokens)[len(prompt) - 1 : -1], is_by_passes=True)


def _generated(model: PreTrainedModel, prompt: tuple[int, ...]) -> tuple[tuple[int, ...], Tensor]:
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        generation_config=GenerationConfig(
            max_new_tokens=N_NEW,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        ),
    )
    tokens = tuple(out.sequences[0, len(prompt) :].tolist())
    return tokens, torch.cat(out.logits).float().log_softmax(1)


def _pass(model: PreTrainedModel, ids: tuple[int, ...]) -> Tensor:
    """Log-probabilities behind each token. [tokens, vocab]"""
    logits: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits.float().log_softmax(1)


def judge(model_type: str) -> Verdict:
    """Builds the model, has transformers continue the prompts, then the engine in each way."""
    try:
        model = tiny_model(model_type)
        model.set_attn_implementation("eager")
        with torch.inference_mode():
            expected = [reference(model, prompt) for prompt in PROMPTS]
    except Exception as error:  # of any model's code
        return Verdict(model_type, Kind.NO_REFERENCE, _line(error))
    try:
        for way, execution, outcomes in _ways(model):
            is_row_by_row = execution.by_rows is not None
            for wanted, found in zip(expected, outcomes, strict=True):
                if difference := wanted.difference(found):
                    return Verdict(model_type, Kind.DIFFERENT, f"{way}: {difference}")
    except UnsupportedModelError as error:
        return Verdict(model_type, Kind.REFUSED, _line(error))
    except Exception as error:
        return Verdict(model_type, Kind.DIFFERENT, _line(error))
    notes = {
        FUSED: is_fused(model),
        ROW_BY_ROW: is_row_by_row,
        BY_PASSES: any(wanted.is_by_passes for wanted in expected),
    }
    return Verdict(
        model_type, Kind.SERVED, "; ".join(note for note, is_so in notes.items() if is_so)
    )


def _ways(model: PreTrainedModel) -> Iterator[tuple[str, Execution, list[Outcome]]]:
    requests = [
        request(f"r{i}", prompt, SAMPLING, max_tokens=N_NEW) for i, prompt in enumerate(PROMPTS)
    ]
    alone = [
        request(f"a{i}", prompt, SAMPLING, max_tokens=N_NEW, cache_salt=str(i))
        for i, prompt in enumerate(PROMPTS)
    ]
    with engine(model=model, limits=roomy(page_size=PAGE_SIZE, max_batch_tokens=9)) as running:
        execution = running.core.execution
        yield "in a batch and in chunks", execution, running.run_together(*requests)
        again = running.run_together(*requests)
        yield "with prefix hits", execution, again
        _check_hits(again)
    with engine(model=model, limits=roomy(page_size=PAGE_SIZE)) as running:
        outcomes = [outcome for req in alone for outcome in running.run(req)]
        yield "alone", execution, outcomes
        longest = running.core.cache.shape.max_pages_of(len(LONG) + N_NEW)
    for part in FEW_PAGES:
        limits = roomy(page_size=PAGE_SIZE, n_pages=int(part * longest))
        with engine(model=model, limits=limits) as running:
            yield "preempted", execution, running.run_together(*requests)
            if running.core.stats().preemptions:
                return
    raise AssertionError("no number of pages has preempted a task")


def _check_hits(outcomes: Iterable[Outcome]) -> None:
    """Each prompt has come before, and the state behind its last full page was kept if there is
    one: all but its last tokens must have been found."""
    for outcome, prompt in zip(outcomes, PROMPTS, strict=True):
        expected = (len(prompt) - 1) // PAGE_SIZE * PAGE_SIZE
        found = outcome.cached_tokens
        assert found == expected, f"prefix hits: {found} tokens were found, not {expected}"


def _line(error: Exception) -> str:
    return " ".join(f"{error}".split())[:200] or type(error).__name__
