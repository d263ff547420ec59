"""The names of a model's modules in adapters.

An adapter of a model that sees names the modules of its language model by their path in the whole.
"""

from collections.abc import Sequence

from transformers import PreTrainedModel

# An attribute of a model that was a part of a larger one: how the names of its modules began there.
PREFIXES = "names_in_whole"


def remember_names(model: PreTrainedModel, prefixes: Sequence[str]) -> None:
    """`prefixes` end with a dot."""
    setattr(model, PREFIXES, tuple(prefixes))


def own_name(model: PreTrainedModel, name: str) -> str:
    """The name of a module in the model itself, whichever an adapter has for it."""
    prefixes: Sequence[str] = getattr(model, PREFIXES, ())
    for prefix in prefixes:
        if name.startswith(prefix):
            return f"{model.base_model_prefix}.{name.removeprefix(prefix)}"
    return name
