"""Makes the events of tasks, and hands those of a step over together when it has ended."""

from dataclasses import replace

from deployments.contract.events import TokenEvent, TokenLogprob
from deployments.engine.outputs.vectors import split
from deployments.engine.sampling.sampler import Sample
from deployments.engine.tasks.mailbox import Mailbox, deliver
from deployments.engine.tasks.task import Task


class Outbox:
    """Events that wait for the end of the step. The scheduler's thread alone uses it."""

    def __init__(self) -> None:
        self._events: list[tuple[Mailbox, TokenEvent]] = []

    def post(self, task: Task, event: TokenEvent) -> None:
        self._events.append((task.mailbox, event))

    def deliver(self) -> None:
        """Hands over all events, and wakes each event loop once."""
        events, self._events = self._events, []
        deliver(events)


def token_event(
    task: Task,
    sample: Sample | None,
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None,
) -> TokenEvent:
    """Returns what a task's readers learn when its last known token was computed.

    `sample` is what was sampled behind that token, and belongs to the task already; None when no
    token may follow. Says with it how many tokens were drafted since the last event.
    """
    token_id = None if sample is None else sample.token_id
    drafted, accepted = task.drafts.take_untold()
    return TokenEvent(
        token_ids=() if token_id is None else (token_id,),
        logprobs=(sample.logprob,) if sample and sample.logprob else None,
        prompt_logprobs=prompt_logprobs,
        mirostat_mu=sample.mirostat_mu if sample else None,
        finish_reason=task.finish_reason(),
        stop_token_id=task.end_token(),
        cached_tokens=task.cached_tokens,
        cached_by_source=task.cached_by_source,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
    )


def vector_events(task: Task, last: TokenEvent) -> list[TokenEvent]:
    """The last events of a task, with its vectors in as many parts as need be."""
    assert task.pooled is not None
    parts = [part for whole in task.pooled.take() for part in split(whole)]
    first = [TokenEvent(vectors=part) for part in parts[:-1]]
    return [*first, replace(last, vectors=parts[-1] if parts else None)]
