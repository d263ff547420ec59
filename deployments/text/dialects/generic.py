"""The dialect of models that were taught none: it is told to them, and is that of Hermes."""

from deployments.text.dialects.hermes import Hermes
from deployments.text.dialects.json_calls import separated_calls


class Generic(Hermes):
    """Its marks are plain text to such a model, which may well forget them around the JSON."""

    name = "generic"
    bare = (("{", separated_calls), ("[", separated_calls))

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return True
