"""How the engine computes a model: the loader tries the ways, and `Forward` takes the one found."""

from dataclasses import dataclass

from deployments.engine.forward.by_rows import ByRows
from deployments.engine.forward.encoder import EncoderWay
from kv.layout import NOTHING, Layout


@dataclass(frozen=True, slots=True)
class Execution:
    """The way that was found to give what transformers gives.

    layout: what each layer stores of a token.
    first_position: the position that the model gives to a sequence's first token.
    has_recurrent_layers: some layers keep a state in the place of keys and values.
    by_rows: how it is run row by row; None: with all rows at once.
    encoder: how its prompts are computed as a whole, without pages; None: it is no encoder.
    """

    layout: Layout = (NOTHING,)
    first_position: int = 0
    has_recurrent_layers: bool = False
    by_rows: ByRows | None = None
    encoder: EncoderWay | None = None

    @property
    def has_states(self) -> bool:
        return self.has_recurrent_layers if self.by_rows is None else self.by_rows.has_states
