"""The type of modules of transformers, whose submodules are read by name."""

from typing import Any

Module = Any  # a torch module; its type does not declare its submodules
