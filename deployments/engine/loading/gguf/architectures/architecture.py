"""The form in which each architecture of GGUF files is described."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from deployments.engine.loading.gguf.facts import GGUFFacts
from deployments.engine.loading.gguf.weight_source import Merge, RowNumbers, Shape, Undo

# Makes of a config and the tensors' shapes without their inputs, which are right, the numbers of a
# parameter's rows among the joined ones.
RowOrder: TypeAlias = Callable[[PretrainedConfig, tuple[Shape, ...]], RowNumbers]


@dataclass(frozen=True)
class Merging:
    """A way to make a parameter of tensors that no order of rows is.

    shapes: of the tensors, by the config.
    """

    shapes: Callable[[PretrainedConfig], tuple[Shape, ...]]
    merge: Merge


@dataclass(frozen=True)
class TensorRecipe:
    """How a parameter is made of tensors.

    tensors: the names of those whose rows are joined. {} is the number of the layer.
    rows: the order of the joined rows in the parameter; None: as they are.
    undo: what is to be done to the numbers of the file; None: nothing. Such tensors stay float32.
    by_weight: each weight is a row of its own. It always is in vectors.
    is_transposed: the parameter has inputs before outputs.
    inputs: the order of each row's weights in the parameter; None: as they are.
    n_parts: the parameters of this size that share the rows, of which `rows` chooses those of one.
    merging: how the tensors become the parameter; None: their rows are joined, as all else says.
    otherwise: the recipe for files that have its tensors, and not these.
    """

    tensors: tuple[str, ...]
    rows: RowOrder | None = None
    undo: Undo | None = None
    by_weight: bool = False
    is_transposed: bool = False
    inputs: RowOrder | None = None
    n_parts: int = 1
    merging: Merging | None = None
    otherwise: "TensorRecipe | None" = None


@dataclass(frozen=True)
class GGUFArchitecture:
    """A kind of models that files are made of.

    config: reads the config of a model. Raises GGUFError, or the errors of the config's class.
    recipes: by the name of each parameter that a model can have. {} is the number of the layer.
    make: makes the model of its config, with the parameters that files have.
    """

    config: Callable[[GGUFFacts], PretrainedConfig]
    recipes: Mapping[str, TensorRecipe]
    make: Callable[[PretrainedConfig], PreTrainedModel] = AutoModelForCausalLM.from_config
