"""Errors that several parts of the engine raise for the same reason."""


class UnsupportedModelError(ValueError):
    """The model needs something that the engine does not have, or some of its files are missing."""
