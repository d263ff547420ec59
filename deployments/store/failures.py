"""Says what a failure of the database means for a request: who asks hears what is wrong, and that
it is out of reach only where nothing is there to answer.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from deployments.contract.errors import ErrorKind, Refused, RequestError

logger = logging.getLogger(__name__)

OUR_FAULTS = (DataError, IntegrityError, ProgrammingError)

FULL = RequestError(
    ErrorKind.STORAGE_FULL,
    "The disk of this server's store is full: nothing can be stored or deleted until it has room",
)
READ_ONLY = RequestError(
    ErrorKind.UNAVAILABLE, "The store of this server can't be written now: it is read-only"
)
BUSY = RequestError(
    ErrorKind.UNAVAILABLE, "The store of this server is busy: others write to it; try again soon"
)
BROKEN = RequestError(
    ErrorKind.UNAVAILABLE, "The store of this server failed; its log says why. Try again soon"
)
OUT_OF_REACH = RequestError(
    ErrorKind.UNAVAILABLE, "The store of this server can't be reached now; try again soon"
)

# https://www.sqlite.org/rescode.html
FOLLOWS_FROM_SQLITE = {
    5: BUSY,
    6: BUSY,  # SQLITE_LOCKED
    8: READ_ONLY,
    13: FULL,
    14: OUT_OF_REACH,  # SQLITE_CANTOPEN
    26: OUT_OF_REACH,  # SQLITE_NOTADB
    10 | 19 << 8: FULL,  # SQLITE_IOERR_SHMSIZE: no room for what readers and writers share
}
# https://www.postgresql.org/docs/current/errcodes-appendix.html
FOLLOWS_FROM_POSTGRES = {
    "25006": READ_ONLY,
    "40001": BUSY,
    "40P01": BUSY,
    "42501": READ_ONLY,  # insufficient_privilege
    "53100": FULL,
    "53200": BUSY,
    "53300": BUSY,
    "55P03": BUSY,
    "57014": BUSY,  # a statement took longer than it may
}
GONE = ("08", "57P")  # classes of Postgres' errors: of the connection, and of a server that stops


class OutOfReach(Refused):
    """Nothing answers. Whoever asks again at once waits again."""


@dataclass(slots=True)
class Attempt:
    is_connected: bool = False


@asynccontextmanager
async def told() -> AsyncIterator[Attempt]:
    """Raises Refused in the place of what the database raises, unless the fault is ours."""
    attempt = Attempt()
    try:
        yield attempt
    except (DBAPIError, PoolTimeout, OSError) as failure:
        error = meaning(failure, attempt.is_connected)
        if error is BROKEN and isinstance(failure, OUR_FAULTS):
            raise
        logger.exception("the store failed")
        raise (out_of_reach() if error is OUT_OF_REACH else Refused(error)) from failure


def meaning(failure: Exception, is_connected: bool) -> RequestError:
    if isinstance(failure, PoolTimeout):
        return BUSY
    if isinstance(failure, TimeoutError):  # asyncpg's own, of a statement or of a connection
        return BUSY if is_connected else OUT_OF_REACH
    if not isinstance(failure, DBAPIError):
        return OUT_OF_REACH
    state = getattr(failure.orig, "sqlstate", None) or ""
    if failure.connection_invalidated or state.startswith(GONE):
        return OUT_OF_REACH
    code = getattr(failure.orig, "sqlite_errorcode", 0)
    known = FOLLOWS_FROM_SQLITE.get(code) or FOLLOWS_FROM_SQLITE.get(code & 0xFF)
    return known or FOLLOWS_FROM_POSTGRES.get(state) or BROKEN


def out_of_reach() -> OutOfReach:
    return OutOfReach(OUT_OF_REACH)
