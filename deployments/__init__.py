"""What Manta serves by: its actors, the engine, and the protocols in front of them."""

import sys

# Transformers imports torchao wherever it is installed, for checkpoints that are refused here. That
# takes a second of each start and prints warnings. `engine/loading/quantization.py` imports it when
# it is needed.
sys.modules.setdefault("torchao", None)  # type: ignore[arg-type]
