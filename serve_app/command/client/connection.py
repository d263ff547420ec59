"""A connection to a server: its address, its key, and errors in words."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from serve_app.command.errors import CommandError, Exit

URL_VARIABLE, KEY_VARIABLE = "MANTA_HOST", "MANTA_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"
PORT = 8000
CONNECT_S = 5.0
STATUSES = {401: Exit.WRONG_KEY, 403: Exit.FAILED, 404: Exit.NO_MODEL}
KEY_NEEDED = "the server takes no request without its key: --api-key, or MANTA_API_KEY"


def server_url(given: str | None) -> str:
    """Returns the address without a path: of a flag, of the environment, or the usual one.

    `HOST`, `HOST:PORT`, `:PORT`, and OpenAI's base URLs with /v1 are understood.
    """
    text = given or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    text = f"127.0.0.1{text}" if text.startswith(":") else text
    has_scheme = "://" in text
    parts = urlsplit(text if has_scheme else f"http://{text}")
    if not parts.hostname:
        raise CommandError(f"{text!r} is no address: it must be HOST, HOST:PORT or a URL")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    host = "127.0.0.1" if host == "0.0.0.0" else host
    port = parts.port or (None if has_scheme else PORT)
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"


def api_key(given: str | None) -> str | None:
    """Returns the key of a flag, or the first one of the environment."""
    listed = given or os.environ.get(KEY_VARIABLE, "")
    return listed.partition(",")[0].strip() or None


class Connection:
    """Raises CommandError for whatever is wrong."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        # No proxy of the environment for a server of one's own.
        is_own = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, trust_env=not is_own
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()

    def get(self, path: str, **query: str) -> Any:
        return self._json("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        return self._json("POST", path, json=body)

    def delete(self, path: str, **query: str) -> Any:
        return self._json("DELETE", path, params=query)

    def is_up(self) -> bool:
        """Whether anything answers there."""
        try:
            self._client.get("/health")
        except httpx.HTTPError:
            return False
        return True

    def lists_models(self) -> bool:
        """Whether its router has started, too."""
        try:
            return self._client.get("/models").is_success
        except httpx.HTTPError:
            return False

    @contextmanager
    def events(
        self, path: str, body: Mapping[str, object] | None = None
    ) -> Iterator[Iterator[Any]]:
        """Yields the objects of a stream of server-sent events."""
        method = "GET" if body is None else "POST"
        with self._told_errors(), self._client.stream(method, path, json=body) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                raise self._failure(answer)
            yield self._objects(answer)

    def _objects(self, answer: httpx.Response) -> Iterator[Any]:
        for line in answer.iter_lines():
            if line.startswith("data:") and (text := line[5:].strip()) != "[DONE]":
                read = json.loads(text)
                if isinstance(read, dict) and read.get("error"):
                    raise CommandError(_message(read))
                yield read

    def _json(self, method: str, path: str, **request: Any) -> Any:
        with self._told_errors():
            answer = self._client.request(method, path, **request)
        if not answer.is_success:
            raise self._failure(answer)
        try:
            return answer.json()
        except ValueError as error:
            raise CommandError(f"{self.url} answers {path} with what is no JSON") from error

    @contextmanager
    def _told_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"no server answers at {self.url}; `manta serve` starts one"
            raise CommandError(message, Exit.NO_SERVER) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{self.url}: {str(error) or type(error).__name__}") from error

    def _failure(self, answer: httpx.Response) -> CommandError:
        status = STATUSES.get(answer.status_code, Exit.FAILED)
        if status is Exit.WRONG_KEY:
            return CommandError(KEY_NEEDED, status)
        try:
            message = _message(answer.json())
        except ValueError:
            message = answer.text.strip()[:200] or answer.reason_phrase
        is_path = status is Exit.NO_MODEL and "model" not in message.lower()
        return CommandError(
            f"{message} ({answer.status_code} of {answer.request.url.path})"
            if is_path
            else message,
            Exit.FAILED if is_path else status,
        )


def _message(body: Any) -> str:
    """Returns the words of an error in OpenAI's form, llama-server's or Ollama's."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        error = error.get("message", error)
    return str(error)
