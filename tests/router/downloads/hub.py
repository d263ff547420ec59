"""A hub on this machine, which speaks as much of the hub's API as a download needs."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40
Files = Mapping[str, bytes]


class Hub:
    """`models` by their names; a file named `halting` stops after its first half, until `go_on`."""

    def __init__(self, models: Mapping[str, Files], halting: str = "") -> None:
        self.models = models
        self.halting = halting
        self.go_on = threading.Event()
        self.asked: list[str] = []
        self.endpoint = ""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = unquote(urlsplit(self.path).path).strip("/")
            hub.asked.append(path)
            if path.startswith("api/models/"):
                self._describe(path.removeprefix("api/models/"))
                return
            model, _, rest = path.partition("/resolve/")
            name = rest.partition("/")[2]
            content = hub.models.get(model, {}).get(name)
            if content is None:
                self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            self._send(200, content if with_body else b"", self._headers(content), name)

        def _describe(self, path: str) -> None:
            model, _, commit = path.partition("/tree/")
            if commit:
                files = hub.models[model].items()
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": str(hash(data))}
                    for name, data in files
                ]
                self._send_json(tree)
                return
            model, _, revision = path.partition("/revision/")
            self._describe_model(model, revision)

        def _describe_model(self, model: str, revision: str) -> None:
            files = hub.models.get(model)
            if files is None:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif revision not in ("", "main", COMMIT):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            else:
                siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
                self._send_json({"id": model, "sha": COMMIT, "siblings": siblings})

        def _send_json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _headers(self, content: bytes) -> dict[str, str]:
            length = str(len(content))
            return {"ETag": f'"{hash(content)}"', "X-Repo-Commit": COMMIT, "Content-Length": length}

        def _send(
            self, status: int, body: bytes, headers: Mapping[str, str], name: str = ""
        ) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if body and name and name == hub.halting:
                half = len(body) // 2
                self.wfile.write(body[:half])
                self.wfile.flush()
                hub.go_on.wait()
                body = body[half:]
            try:
                self.wfile.write(body)
            except OSError:  # it was cancelled
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
