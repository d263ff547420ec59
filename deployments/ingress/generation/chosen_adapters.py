"""The adapters of a request: by `lora` if it has that, else by its `model`."""

from collections.abc import Sequence

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.served_adapters import MAX_CHOSEN, SEPARATOR, Scales

LoraScales = Sequence[tuple[int, float]]  # ids and scales


def chosen_adapters(card: ModelCard, lora: LoraScales | None) -> Scales:
    """Returns the adapters and scales of a request, in the order of the adapters' ids.

    Adapters of scale 0 are left out: they are as good as none. Raises Refused.
    """
    asked = card.adapters
    if lora is None:
        return asked.implied
    if asked.named is not None:
        base = f"{card.name}{SEPARATOR}{asked.named.name}"
        message = f"`lora` cannot be combined with a `model` that names an adapter ({base})"
        raise refused(message, "lora")
    scales: dict[int, float] = {}
    known = {served.id for served in asked.table.adapters}
    for index, (adapter, scale) in enumerate(lora):
        param = f"lora[{index}].id"
        if adapter not in known:
            raise refused(f"`{param}`: the model {card.name!r} has no adapter {adapter}", param)
        if adapter in scales:
            raise refused(f"`{param}`: the adapter {adapter} has a scale already", param)
        scales[adapter] = scale
    chosen = [
        (served, scales[served.id]) for served in asked.table.adapters if scales.get(served.id)
    ]
    if len(chosen) > MAX_CHOSEN:
        raise refused(f"`lora` must give at most {MAX_CHOSEN} adapters a scale but 0", "lora")
    return chosen
