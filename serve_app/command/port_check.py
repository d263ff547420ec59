"""Whether a port is free. Serve's proxies would share it in silence with another server: they bind
it so that the kernel deals connections to both.
"""

import errno
import socket

import psutil


class PortTaken(Exception):
    pass


def check_port(host: str, port: int) -> None:
    """Raises PortTaken where something listens there. Other failures are the proxy's to tell."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            # Connections that have just ended keep a port, too, and hinder no proxy.
            if error.errno == errno.EADDRINUSE and (listeners := _listeners(port)):
                message = f"port {port} is taken: {', '.join(listeners)} listens on it"
                raise PortTaken(f"{message}. Another `http_options.port` is needed") from error


def _listeners(port: int) -> list[str]:
    """Each once. What belongs to other users has no name here."""
    found = psutil.net_connections(kind="tcp")
    listening = [
        sock
        for sock in found
        if sock.status == psutil.CONN_LISTEN and sock.laddr and sock.laddr.port == port
    ]
    return sorted({_described(sock.pid) for sock in listening})


def _described(pid: int | None) -> str:
    if pid is None:
        return "a process of another user"
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"
