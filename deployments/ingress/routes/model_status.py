"""A model's state as endpoints tell it: llama-server's words, and the exact state beside them."""

from collections.abc import Iterator, Mapping, Sequence

from deployments.contract.model_status import ModelState, ModelStatus
from deployments.ingress.http.sse import data, encode

LLAMA_STATES = {ModelState.READY: "loaded", ModelState.FAILED: "unloaded"}


def status_object(status: ModelStatus) -> Mapping[str, object]:
    """`value` is what llama-server's clients know; `state` is the state itself."""
    fields: dict[str, object] = {
        "value": LLAMA_STATES.get(status.state, status.state.value),
        "state": status.state.value,
        "replicas": status.replicas,
        "replicas_target": status.replicas_target,
    }
    if status.state is ModelState.FAILED:
        fields["failed"] = True
    if status.message:
        fields["message"] = status.message
    if status.progress is not None:
        stage = status.progress.stage
        fields["progress"] = {"stages": [stage], "current": stage, "value": status.progress.value}
    return fields


def status_events(before: Sequence[ModelStatus], now: Sequence[ModelStatus]) -> Iterator[bytes]:
    """Server-sent events for all that differs."""
    known = {status.name: status_object(status) for status in before}
    downloading = {model.name for model in before if model.state is ModelState.DOWNLOADING}
    for status in now:
        fields = status_object(status)
        if known.pop(status.name, None) != fields:
            rest = {name: value for name, value in fields.items() if name != "value"}
            yield _event(status.name, "status_change", {"status": fields["value"], **rest})
        if status.name in downloading and status.state is ModelState.FAILED:
            yield _event(status.name, "download_failed", {"message": status.message})
        elif status.name in downloading and status.state is not ModelState.DOWNLOADING:
            yield _event(status.name, "download_finished", {})
    for name in known:
        yield _event(name, "model_remove", {})
    if before and _listed(before) != _listed(now):
        yield _event("*", "models_reload", {})


def _listed(statuses: Sequence[ModelStatus]) -> set[str]:
    """The names in a list of models: those of their adapters, too."""
    adapters = (adapter.name for status in statuses for adapter in status.adapters.adapters)
    return {status.name for status in statuses}.union(adapters)


def _event(model: str, event: str, fields: Mapping[str, object]) -> bytes:
    return data(encode({"model": model, "event": event, "data": fields}))
