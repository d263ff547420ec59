"""The port to serve on."""

from serve_app.command.errors import CommandError, Exit
from serve_app.command.port_check import PortTaken, check_port

FIRST, N_TRIED = 8000, 100


def choose_port(host: str, port: int | None) -> int:
    """Returns the port that was asked for, or the first free one. Raises CommandError."""
    tried = range(FIRST, FIRST + N_TRIED) if port is None else [port]
    taken = ""
    for candidate in tried:
        try:
            check_port(host, candidate)
        except PortTaken as error:
            taken = taken or str(error).partition(". ")[0]
        else:
            if taken:
                print(f"{taken}: serving on {candidate}")
            return candidate
    raise CommandError(f"{taken}. --port takes another one", Exit.PORT_TAKEN)
