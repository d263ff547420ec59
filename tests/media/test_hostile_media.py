"""Media of strangers are refused by name, in bounded memory, and delay nobody else."""

import asyncio
import os
import tracemalloc
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from deployments.contract.errors import Refused
from deployments.ingress.generation.media_reader import MediaReader
from deployments.media.fetch import Fetcher
from deployments.media.file_types import FileKind
from deployments.media.settings import MediaSettings
from deployments.media.source import Source
from tests.media.files import DOCUMENTS, IMAGES, SOUNDS, image, pdf
from tests.media.serving import blind, seeing

PATH = "messages[0].content[0]"
MAX_BYTES = 4 << 20
MEMORY = 48 << 20  # of a process that reads all of them one after the other


def settings(folder: Path | None = None, *hosts: str) -> MediaSettings:
    return MediaSettings(
        max_bytes=MAX_BYTES,
        max_audio_s=60,
        decode_timeout_s=240,
        fetch_timeout_s=1,
        hosts=hosts,
        folder=None if folder is None else str(folder),
    )


def sent(kind: FileKind | None, data: bytes) -> Source:
    return Source(kind=kind, path=PATH, data=b64encode(data).decode())


def linked(url: str) -> Source:
    return Source(kind=FileKind.IMAGE, path=PATH, url=url)


def refusals(reader: MediaReader, sources: Sequence[Source]) -> list[Refused | None]:
    """Returns the refusal of each source; None for one that is read."""

    async def refusal(source: Source) -> Refused | None:
        try:
            await reader.read([source], seeing(), "client", lambda n_bytes: None)
        except Refused as refused:
            return refused
        return None

    async def all_of_them() -> list[Refused | None]:
        return [await refusal(source) for source in sources]

    try:
        return asyncio.run(all_of_them())
    finally:
        reader.close()


def check(names: Sequence[str], found: Sequence[Refused | None]) -> None:
    for name, refused in zip(names, found, strict=True):
        assert refused is not None, f"{name} is read"
        assert refused.error.param == PATH, name
        assert str(refused).startswith(f"`{PATH}` "), name
        assert "object at 0x" not in str(refused), name


def test_hostile_files_are_refused_in_bounded_memory() -> None:
    kinds: tuple[tuple[FileKind | None, dict[str, bytes]], ...] = (
        (FileKind.IMAGE, IMAGES),
        (FileKind.AUDIO, SOUNDS),
        (None, DOCUMENTS),
    )
    sources = {
        f"{kind}: {name}": sent(kind, data) for kind, files in kinds for name, data in files.items()
    }
    sources["a file of no known kind"] = sent(None, b"PK\3\4" + bytes(100))
    sources["nothing"] = Source(kind=FileKind.IMAGE, path=PATH, data="")
    sources["no base64"] = Source(kind=FileKind.IMAGE, path=PATH, data="????")
    sources["too large"] = sent(FileKind.IMAGE, image() + bytes(MAX_BYTES))
    sources["a data: URL without base64"] = linked("data:image/png,%89PNG")
    sources["no URL"] = linked("http://[")
    assert len(sources) >= 40
    tracemalloc.start()
    try:
        found = refusals(MediaReader(settings()), list(sources.values()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    check(list(sources), found)
    assert peak < MEMORY


class Hostile(BaseHTTPRequestHandler):
    """Answers a path as its name says."""

    waiting = Event()  # set when a request waits
    over = Event()

    def do_GET(self) -> None:
        getattr(self, "send_" + self.path.strip("/").partition("/")[0])()

    def log_message(self, *args: object) -> None:
        pass

    def redirect(self, url: str) -> None:
        self.send_response(302)
        self.send_header("location", url)
        self.end_headers()

    def send_image(self) -> None:
        data = image()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_moved(self) -> None:
        self.redirect("/image")

    def send_private(self) -> None:
        self.redirect("http://10.0.0.1/")

    def send_localhost(self) -> None:
        self.redirect("http://localhost/image")

    def send_file(self) -> None:
        self.redirect("file:///etc/passwd")

    def send_loop(self) -> None:
        self.redirect("/loop")

    def send_missing(self) -> None:
        self.send_error(404)

    def send_short(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "100000")
        self.end_headers()
        self.wfile.write(image())

    def send_endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(1 << 16))
        except OSError:
            self.close_connection = True

    def send_silent(self) -> None:
        self.waiting.set()
        self.over.wait(30)

    def send_drops(self) -> None:
        """A byte of the head now and then, so that no read waits long."""
        try:
            while not self.over.wait(0.1):
                self.wfile.write(b"H")
        except OSError:
            self.close_connection = True

    def send_drips(self) -> None:
        """The same of the body, behind a head that takes the socket from its connection."""
        self.send_response(200)
        self.send_header("connection", "close")
        self.end_headers()
        self.send_drops()


@contextmanager
def hostile_server() -> Iterator[str]:
    Hostile.over.clear()
    Hostile.waiting.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        Hostile.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_hostile_urls_are_refused() -> None:
    answers = (
        *("private", "localhost", "file", "loop", "missing", "short", "endless"),
        *("drops", "drips"),
    )
    with hostile_server() as host:
        reader = MediaReader(settings(None, host, "*"))
        urls = [
            *(f"http://{host}/{answer}" for answer in answers),
            "http://127.0.0.1/x",
            "http://127.0.0.1:1/x",
            "http://localhost/x",
            "http://[::1]/x",
            "http://[::ffff:127.0.0.1]/x",
            "http://[64:ff9b::7f00:1]/x",
            "http://[2002:7f00:1::]/x",
            "http://169.254.169.254/latest/meta-data",
            "http://10.0.0.1/x",
            "http://0.0.0.0/x",
            "http://224.0.0.1/x",
            "http://2130706433/x",
            "http://0x7f.1/x",
            "http://me:secret@example.com/x",
            "http://example.com:99999/x",
            "http://example.com/a b",
            "http://example.com/\r\nX: y",
            "http:///x",
            "ftp://example.com/x",
            "gopher://example.com/x",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http://no-such-name.invalid/x",
            "http://example.com/" + "x" * 9000,
        ]
        check(urls, refusals(reader, [linked(url) for url in urls]))


def test_a_file_is_fetched_from_a_host_that_is_allowed_and_from_no_other_one() -> None:
    with hostile_server() as host:
        urls = [linked(f"http://{host}/{path}") for path in ("image", "moved")]
        allowed = replace(settings(None, host), fetch_timeout_s=60)
        assert refusals(MediaReader(allowed), urls) == [None, None]
        check(["image", "moved"], refusals(MediaReader(settings(None, "example.com")), urls))


def test_a_name_is_resolved_once_and_all_of_its_addresses_have_to_be_public() -> None:
    asked: list[str] = []
    answers = iter((["93.184.216.34", "10.0.0.1"], ["127.0.0.1"], []))

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    reader = MediaReader(settings())
    reader.fetcher = Fetcher(["changes.example"], 1, MAX_BYTES, resolve)
    urls = ["http://changes.example/"] * 3
    check(urls, refusals(reader, [linked(url) for url in urls]))
    assert len(asked) == 3


def test_a_connection_goes_to_the_address_that_was_checked() -> None:
    """The second answer of the name server is what an attacker waits for."""
    with hostile_server() as host:
        port = int(host.rpartition(":")[2])
        answers = iter((["93.184.216.34"], ["127.0.0.1"]))
        reader = MediaReader(settings())
        reader.fetcher = Fetcher(
            [f"changes.example:{port}"], 0.5, MAX_BYTES, lambda host, port: next(answers)
        )
        url = f"http://changes.example:{port}/silent"
        check([url], refusals(reader, [linked(url)]))
        assert not Hostile.waiting.is_set()
    assert next(answers) == ["127.0.0.1"]


def test_only_files_of_the_media_folder_are_read(tmp_path: Path) -> None:
    folder, outside = tmp_path / "media", tmp_path / "secret.png"
    (folder / "sub").mkdir(parents=True)
    outside.write_bytes(image())
    (folder / "sub" / "in.png").write_bytes(image())
    (folder / "link.png").symlink_to(outside)
    os.mkfifo(folder / "pipe.png")
    good = ["file://sub/in.png", "file:///sub/in.png", "file://sub/../sub/in.png"]
    bad = [
        "file://../secret.png",
        "file:///etc/passwd",
        f"file://{outside}",
        "file://link.png",
        "file://pipe.png",
        "file://sub",
        "file://missing.png",
        "file://a\0b",
    ]
    found = refusals(MediaReader(settings(folder)), [linked(url) for url in good + bad])
    assert found[: len(good)] == [None] * len(good)
    check(bad, found[len(good) :])


def test_a_client_that_waits_for_its_file_delays_no_other_one() -> None:
    async def both(reader: MediaReader, host: str) -> None:
        reserve, mine = (lambda n_bytes: None), [sent(FileKind.IMAGE, image())]
        waiting = [
            asyncio.ensure_future(
                reader.read([linked(f"http://{host}/silent")], seeing(), "other", reserve)
            )
            for _ in range(8)
        ]
        await asyncio.to_thread(Hostile.waiting.wait, 30)
        assert await reader.read(mine, seeing(), "me", reserve)
        assert not any(task.done() for task in waiting)
        Hostile.over.set()
        assert all(
            isinstance(result, Refused)
            for result in await asyncio.gather(*waiting, return_exceptions=True)
        )

    with hostile_server() as host:
        reader = MediaReader(MediaSettings(hosts=(host,), fetch_timeout_s=60))
        try:
            asyncio.run(both(reader, host))
        finally:
            reader.close()


def test_a_client_that_leaves_has_its_turn_until_its_thread_ends() -> None:
    async def leave(reader: MediaReader, host: str) -> None:
        source = linked(f"http://{host}/silent")
        waiting = asyncio.ensure_future(
            reader.read([source], seeing(), "client", lambda n_bytes: None)
        )
        await asyncio.to_thread(Hostile.waiting.wait, 30)
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        Hostile.over.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with hostile_server() as host:
        asyncio.run(leave(MediaReader(MediaSettings(hosts=(host,), fetch_timeout_s=60)), host))


def test_the_texts_of_a_document_count_among_what_is_reserved() -> None:
    reserved: list[int] = []
    reader = MediaReader(MediaSettings())
    source = sent(FileKind.DOCUMENT, pdf(3, "A page of text."))
    asyncio.run(reader.read([source], blind(), "client", reserved.append))
    reader.close()
    assert reserved[-1] > 3 * len("A page of text.")


def test_a_file_that_takes_too_long_is_refused_and_the_next_one_is_read() -> None:
    reader = MediaReader(MediaSettings(decode_timeout_s=0.01))  # not even the decoder has begun
    sources = [sent(FileKind.IMAGE, image())]
    [refused] = refusals(reader, sources)
    assert "takes more than 0.01 seconds to decode" in str(refused)
    assert refusals(MediaReader(MediaSettings()), sources) == [None]


def test_more_media_than_are_allowed_are_refused_with_the_number() -> None:
    reader = MediaReader(MediaSettings(max_media=2))
    sources = [sent(FileKind.IMAGE, image())] * 3
    with pytest.raises(Refused, match="has 3 images, sounds and pages of documents, and at most 2"):
        asyncio.run(reader.read(sources, seeing(), "client", lambda n_bytes: None))
