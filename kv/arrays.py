"""The type of the integer arrays that cache and engine share: page tables, lengths, token ids."""

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
