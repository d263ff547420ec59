"""The fields that vLLM adds to a choice: the ids of its tokens, and what stopped it."""

from deployments.openai.fields.vllm_fields import VllmFields
from deployments.text.stream import TextDelta
from deployments.wire import ModelCard


class VllmChoiceFields:
    """The end of a text by a token that is not the request's own has no `stop_reason`."""

    def __init__(self, fields: VllmFields, card: ModelCard) -> None:
        self._with_ids = bool(fields.return_token_ids)
        own_ends = () if fields.ignore_eos else card.eos_token_ids
        self._asked_ends = frozenset(fields.stop_token_ids or ()).difference(own_ends)

    def produced(self, delta: TextDelta) -> dict[str, object]:
        return {"token_ids": delta.token_ids} if self._with_ids else {}

    def ended(self, delta: TextDelta) -> dict[str, object]:
        asked = isinstance(delta.stop, str) or delta.stop in self._asked_ends
        return {"stop_reason": delta.stop} if asked else {}
