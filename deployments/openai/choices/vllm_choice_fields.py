"""The fields that vLLM adds to a choice: its token ids and its `stop_reason`."""

from deployments.contract.model_card import ModelCard
from deployments.openai.fields.vllm_fields import VllmFields
from deployments.text.stream import TextDelta


class VllmChoiceFields:
    """Only stop strings and token ids of the request are a `stop_reason`, not the model's EOS."""

    def __init__(self, fields: VllmFields, card: ModelCard) -> None:
        self._with_ids = bool(fields.return_token_ids)
        own_ends = () if fields.ignore_eos else card.eos_token_ids
        self._asked_ends = frozenset(fields.stop_token_ids or ()).difference(own_ends)

    def produced(self, delta: TextDelta) -> dict[str, object]:
        return {"token_ids": delta.token_ids} if self._with_ids else {}

    def ended(self, delta: TextDelta) -> dict[str, object]:
        asked = isinstance(delta.stop, str) or delta.stop in self._asked_ends
        return {"stop_reason": delta.stop} if asked else {}
