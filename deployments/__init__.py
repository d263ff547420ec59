"""The parts of Manta: its actors, the engine, and the protocols in front of them."""

import sys

# None says that there is no torchao. Else transformers imports it wherever it is installed, for
# checkpoints that are refused here: that takes a second of each start and prints warnings.
sys.modules.setdefault("torchao", None)  # type: ignore[arg-type]
