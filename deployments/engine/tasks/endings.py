"""Last events of tasks that are ended from outside, or by a failure."""

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason, TokenEvent

ABORTED = TokenEvent(finish_reason=FinishReason.ABORT)
STOPPED = TokenEvent.failed("the engine stopped", ErrorKind.UNAVAILABLE)
FAILED = TokenEvent.failed("the model failed on this request")
OUT_OF_MEMORY = TokenEvent.failed(
    "The model ran out of memory on this request alone; try a shorter one", ErrorKind.OUT_OF_MEMORY
)
NOT_FINITE = TokenEvent.failed("the model's output was not finite")
