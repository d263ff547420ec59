"""A proxy as operators have it: it leads a path prefix to a server, piece by piece as it comes."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import sleep
from urllib.parse import urlsplit

OF_A_CONNECTION = {"connection", "keep-alive", "transfer-encoding"}
Answer = Callable[[BaseHTTPRequestHandler], bool]
SLOW_PIECE, SLOW_PAUSE_S = 256, 0.03  # about one chunk of an answer


def _answers_none(_: BaseHTTPRequestHandler) -> bool:
    return False


@contextmanager
def proxied(
    url: str, prefix: str = "", answers: Answer = _answers_none, *, is_slow: bool = False
) -> Iterator[str]:
    """The address of a proxy before `url`. `answers` says whether it has answered itself. A slow
    one passes on some thirty chunks a second."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _lead(self) -> None:
            self.close_connection = True  # each answer ends with its connection
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
            elif not answers(self):
                self._forward(self.path.removeprefix(prefix))

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _lead

        def _forward(self, path: str) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            behind = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
            try:
                behind.request(self.command, path, body or None, dict(self.headers.items()))
                self._send(behind.getresponse())
            except (ConnectionError, http.client.HTTPException):  # either side has gone
                pass
            finally:
                behind.close()

        def _send(self, answer: http.client.HTTPResponse) -> None:
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in OF_A_CONNECTION:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            while piece := answer.read1(SLOW_PIECE if is_slow else -1):
                self.wfile.write(piece)
                self.wfile.flush()
                if is_slow:
                    sleep(SLOW_PAUSE_S)

        def log_message(self, *_: object) -> None:
            """Keeps the log out of the output of tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}"
        finally:
            server.shutdown()
