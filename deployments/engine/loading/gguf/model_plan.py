"""Makes of a GGUF file the config of its model, and a plan of where each weight comes from.

A file is read whole or refused: what it has and no parameter takes, and what a parameter lacks, is
named.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PretrainedConfig, PreTrainedModel

from deployments.contract.outputs import Pooling
from deployments.engine.errors import unsupported_on_error
from deployments.engine.loading.gguf.architectures.architecture import (
    GGUFArchitecture,
    Merging,
    TensorRecipe,
)
from deployments.engine.loading.gguf.architectures.table import ARCHITECTURES
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.facts import GGUFFacts
from deployments.engine.loading.gguf.reader import GGUF
from deployments.engine.loading.gguf.tensors import GGUFTensor
from deployments.engine.loading.gguf.weight_source import Shape, WeightSource

LAYER_NUMBER = re.compile(r"\.(\d+)\.")
MAX_LISTED_NAMES = 5  # in an error


@dataclass(frozen=True)
class GGUFPlan:
    """A model of a file, of which no weight has been read yet.

    config: as transformers would have it of the model's original files.
    sources: by the name of each weight in the class that `config` names. Weights that are tied to
        others are left out, and so is the pooler of BERT, which files do not have.
    pooling: how a text becomes a vector, in files of models that are made for that; None: the file
        does not say it.
    """

    config: PretrainedConfig
    sources: Mapping[str, WeightSource]
    pooling: Pooling | None = None


def read_plan(gguf: GGUF) -> GGUFPlan:
    """Reads the config and the plan. Of the tensors it reads only those that are no weights, such
    as factors of frequencies.

    Raises GGUFError, UnsupportedModelError where transformers refuses the config, or OSError.
    """
    path, facts = gguf.files[0], GGUFFacts(gguf)
    architecture = ARCHITECTURES.get(facts.architecture)
    if architecture is None:
        raise GGUFError(
            f"{path}: its architecture {facts.architecture!r:.50} is not supported, "
            f"only {', '.join(sorted(ARCHITECTURES))} are"
        )
    with unsupported_on_error(f"{path}: transformers refuses the config that it says"):
        config = architecture.config(facts)
        with torch.device("meta"):
            model = architecture.make(config)
    pooling = facts.pooling()
    if unknown := [*facts.keys_left_over()]:
        raise GGUFError(f"{path}: it has keys that are not supported: {_listed(unknown)}")
    config.architectures = [type(model).__name__]
    planner = _Planner(gguf, architecture, config)
    sources = {name: planner.source(name, shape) for name, shape in _weights(model)}
    used = {tensor.name for source in sources.values() for tensor in source.tensors}
    if left_over := gguf.tensors.keys() - used - facts.tensors_beside():
        raise GGUFError(
            f"{path}: {type(model).__name__} has no weights for its tensors {_listed(left_over)}"
        )
    return GGUFPlan(config, sources, pooling)


def _weights(model: PreTrainedModel) -> Iterator[tuple[str, Shape]]:
    """The names and shapes of all that files have, each once."""
    names: dict[int, str] = {}
    for name, weight in model.state_dict(keep_vars=True).items():
        if names.setdefault(id(weight), name) == name:
            yield name, tuple(weight.shape)


class _Planner:
    """Finds the tensors of one weight after the other."""

    def __init__(
        self, gguf: GGUF, architecture: GGUFArchitecture, config: PretrainedConfig
    ) -> None:
        self._path: Path = gguf.files[0]
        self._tensors = gguf.tensors
        self._recipes = architecture.recipes
        self._config = config

    def source(self, name: str, shape: Shape) -> WeightSource:
        number = LAYER_NUMBER.search(name)
        recipe = self._recipes.get(LAYER_NUMBER.sub(".{}.", name, count=1))
        if recipe is None:
            raise GGUFError(f"{self._path}: no tensor is known to be {name}")
        layer = number[1] if number else ""
        recipe = self._fitting(recipe, layer)
        tensors = tuple(self._tensor(tensor.format(layer), name) for tensor in recipe.tensors)
        if recipe.merging is not None:
            self._check_merged(name, recipe.merging, tensors)
            return WeightSource(shape, tensors, merge=recipe.merging.merge)
        by_weight = recipe.by_weight or len(shape) == 1
        self._check_shapes(name, shape, recipe, tensors)
        ends = None if by_weight else -1
        shapes = tuple(tensor.shape[:ends] for tensor in tensors)
        with unsupported_on_error(f"{self._path}: {name} has no such order of rows"):
            rows, inputs = (
                order and order(self._config, shapes) for order in (recipe.rows, recipe.inputs)
            )
        return WeightSource(
            shape, tensors, rows, recipe.undo, by_weight, recipe.is_transposed, inputs
        )

    def _fitting(self, recipe: TensorRecipe, layer: str) -> TensorRecipe:
        """The first of the recipes whose tensors the file has. The first one of all if it has those
        of none: it is the usual one, and the error names what it lacks."""
        found: TensorRecipe | None = recipe
        while found is not None:
            if all(tensor.format(layer) in self._tensors for tensor in found.tensors):
                return found
            found = found.otherwise
        return recipe

    def _tensor(self, name: str, parameter: str) -> GGUFTensor:
        found = self._tensors.get(name)
        if found is None:
            raise GGUFError(
                f"{self._path}: it has no tensor {name!r}, which {parameter} is made of"
            )
        return found

    def _check_shapes(
        self, name: str, shape: Shape, recipe: TensorRecipe, tensors: tuple[GGUFTensor, ...]
    ) -> None:
        """The tensors may be of different sizes only along the rows that are joined."""
        due = [*shape[:-2], shape[-1], shape[-2]] if recipe.is_transposed else [*shape]
        axis = len(due) - (1 if recipe.by_weight or len(due) == 1 else 2)
        whole = [*due]
        whole[axis] *= recipe.n_parts
        n_rows = 0
        for tensor in tensors:
            found = [*tensor.shape]
            if len(tensors) == 1:
                # The size of a dimension of 1 is known, and files may leave it out.
                found, expected = _without_ones(found), _without_ones(whole)
            else:
                n_rows += found[axis] if len(found) == len(due) else 0
                expected = [*whole[:axis], *found[axis : axis + 1], *whole[axis + 1 :]]
            if found != expected:
                raise self._wrong_shape(tensor, name, due)
        if len(tensors) > 1 and n_rows != whole[axis]:
            raise self._wrong_shape(tensors[-1], name, due)

    def _check_merged(self, name: str, merging: Merging, tensors: tuple[GGUFTensor, ...]) -> None:
        for tensor, due in zip(tensors, merging.shapes(self._config), strict=True):
            if tensor.shape != due:
                raise self._wrong_shape(tensor, f"{name}'s part", [*due])

    def _wrong_shape(self, tensor: GGUFTensor, name: str, due: list[int]) -> GGUFError:
        return GGUFError(
            f"{self._path}: tensor {tensor.name!r}: its shape {[*tensor.shape]} does not fit "
            f"{name}, which is {due}"
        )


def _without_ones(shape: list[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:MAX_LISTED_NAMES])
    n_more = len(names) - MAX_LISTED_NAMES
    return f"{shown} and {n_more} more" if n_more > 0 else shown
