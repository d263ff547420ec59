"""The error for whatever can be wrong with a GGUF file. Free of torch, for routers."""

from deployments.engine.errors import UnsupportedModelError


class GGUFError(UnsupportedModelError):
    """A GGUF file is broken, or holds what is not read here. It names the file and the place."""
