"""Downloads of models into the folder that the operator named, each by a process of its own.

A model gets its folder at once, by a rename, when all of it is there. What is not whole lies in
PARTIAL, which nothing is served from, and goes when the download ends or the router starts.
"""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deployments.contract.errors import ErrorKind, RequestError, refused
from deployments.contract.model_status import LoadProgress, ModelState, ModelStatus
from deployments.engine.loading.gguf.names import is_gguf
from deployments.model.settings import application_name
from deployments.router.downloads.fetch import gib, size_of
from deployments.router.lifecycle.change_feed import ChangeFeed
from deployments.router.presets.hub_names import folder_name, refuse_name
from deployments.router.settings import DownloadSettings
from deployments.serving.detached_tasks import create_detached_task

log = logging.getLogger("ray.serve")

PARTIAL = ".partial"
STAGE = "download"
SOURCE = "download"
MAX_AT_ONCE = 2
MAX_FAILED = 16  # that are remembered
# Whole files over plain HTTP: the other way has a cache of its own. Nothing else may print.
QUIET = {
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
OFF = RequestError(
    ErrorKind.FEATURE_DISABLED, "Downloads are off: the router has no `downloads_dir`"
)


@dataclass(slots=True, eq=False)
class Download:
    """failure: why it ended; "" while it runs. total: bytes, 0 until they are known."""

    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    failure: str = ""
    total: int = 0
    done: int = 0
    is_cancelled: bool = False
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def status(self) -> ModelStatus:
        progress = LoadProgress(stage=STAGE, value=self.done / self.total) if self.total else None
        return ModelStatus(
            name=self.model,
            application=application_name(self.model),
            state=ModelState.FAILED if self.failure else ModelState.DOWNLOADING,
            created=self.created,
            message=self.failure and f"the download failed: {self.failure}",
            source=SOURCE,
            progress=None if self.failure else progress,
        )


class Downloads:
    """Belongs to one event loop. `reload` makes the router list what has come, or says why not."""

    def __init__(
        self,
        settings: DownloadSettings,
        changes: ChangeFeed,
        reload: Callable[[], Awaitable[RequestError | None]],
    ) -> None:
        self._folder = Path(settings.folder)
        self._max_bytes = int(settings.max_gib * (1 << 30))
        self._changes = changes
        self._reload = reload
        self._downloads: dict[str, Download] = {}  # that run, and that failed, oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    async def clean(self) -> None:
        """Makes the folder, and removes what an earlier router left half downloaded."""
        await asyncio.to_thread(self._clean)

    @property
    def statuses(self) -> list[ModelStatus]:
        return [download.status for download in self._downloads.values()]

    def get(self, model: str) -> ModelStatus | None:
        found = self._downloads.get(model)
        return None if found is None else found.status

    def start(self, model: str, revision: str | None) -> RequestError | None:
        """Starts a download. Returns the refusal, if any; no model may have this name."""
        if refusal := refuse_name(model, revision):
            return refusal
        running = [earlier for earlier in self._downloads.values() if not earlier.failure]
        if any(application_name(earlier.model) == application_name(model) for earlier in running):
            return refused(f"The model {model!r} is being downloaded already", "model").error
        if len(running) >= MAX_AT_ONCE:
            message = f"{len(running)} models are being downloaded already; try again later"
            return RequestError(ErrorKind.OVERLOADED, message)
        self._downloads.pop(model, None)
        download = self._downloads[model] = Download(model)
        self._changes.publish(download.status)
        task = create_detached_task(self._run(download, revision))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    def cancel(self, model: str) -> bool:
        """Ends a download, or forgets one that has failed; whether there was one."""
        download = self._downloads.get(model)
        if download is None:
            return False
        download.is_cancelled = True
        if download.process is not None:
            download.process.kill()
        self._forget(download)
        return True

    async def delete(self, path: str) -> None:
        """Deletes a downloaded model, a folder or a file in it. It must lie right in the folder."""
        folder = Path(path).parent if is_gguf(path) else Path(path)
        assert folder.parent == self._folder.resolve(), path
        gone = self._folder / PARTIAL / uuid.uuid4().hex
        await asyncio.to_thread(_remove, folder, gone)

    async def _run(self, download: Download, revision: str | None) -> None:
        log.info("downloading model %s", download.model)
        part = self._folder / PARTIAL / f"{folder_name(download.model)}-{uuid.uuid4().hex}"
        try:
            failure = await self._fetch(download, revision, part)
            if not failure and not download.is_cancelled:
                failure = await self._take(download, part)
        except OSError as error:
            failure = str(error)
        finally:
            await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
        if download.is_cancelled:
            log.info("the download of model %s was cancelled", download.model)
        elif failure:
            log.warning("model %s was not downloaded: %s", download.model, failure)
            download.failure = failure
            self._changes.publish(download.status)
            self._forget_old_failures()
        else:
            log.info("model %s was downloaded", download.model)

    async def _fetch(self, download: Download, revision: str | None, part: Path) -> str:
        """Why it failed; "" if it did not."""
        await asyncio.to_thread(part.mkdir, parents=True)
        loop = asyncio.get_running_loop()
        failures: list[str] = []

        def told(fields: Mapping[str, object]) -> None:
            """Hears on the event loop what the process tells."""
            match fields:
                case {"error": str(error)}:
                    failures.append(error)
                case {"total": int(total)}:
                    download.total = total
                    failures.extend(self._shortage(download))
                case {"done": int(done)}:
                    download.done = done
            if failures and download.process is not None:
                download.process.kill()
            elif not download.is_cancelled:
                self._changes.publish(download.status)

        download.process = await asyncio.to_thread(_start, download.model, revision or "", part)
        if download.is_cancelled:
            download.process.kill()
        code = await asyncio.to_thread(
            _follow, download.process, lambda line: loop.call_soon_threadsafe(told, line)
        )
        await asyncio.sleep(0)  # what it told last is heard
        if failures:
            return failures[0]
        return f"its process ended with {code}" if code else ""

    def _shortage(self, download: Download) -> list[str]:
        """Why so much may not come; empty if it may. Others that are under way count whole."""
        used = size_of(self._folder) - size_of(self._folder / PARTIAL)
        rest = (other for other in self._downloads.values() if other is not download)
        others = sum(other.total for other in rest if not other.failure)
        left = max(0, self._max_bytes - used - others)
        if download.total <= left:
            return []
        return [f"it has {gib(download.total)} GiB, and downloads_max_gib leaves {gib(left)} GiB"]

    async def _take(self, download: Download, part: Path) -> str:
        """Has the complete model listed. Returns why it can't be."""
        whole = self._folder / folder_name(download.model)
        await asyncio.to_thread(os.rename, part, whole)
        error = await self._reload()
        if error is not None and not download.is_cancelled:
            await asyncio.to_thread(os.rename, whole, part)
            if await self._reload() is None:
                return error.message  # of this model alone
            await asyncio.to_thread(os.rename, part, whole)
            log.warning("model %s is listed once this is right: %s", download.model, error.message)
        elif download.is_cancelled:
            await asyncio.to_thread(shutil.rmtree, whole, ignore_errors=True)
            await self._reload()
        self._downloads.pop(download.model, None)
        return ""

    def _forget(self, download: Download) -> None:
        del self._downloads[download.model]
        self._changes.forget(download.model)

    def _forget_old_failures(self) -> None:
        failed = [download for download in self._downloads.values() if download.failure]
        for download in failed[:-MAX_FAILED]:
            self._forget(download)

    def _clean(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._folder / PARTIAL, ignore_errors=True)


def _start(model: str, revision: str, part: Path) -> "subprocess.Popen[bytes]":
    script = str(Path(__file__).with_name("fetch.py"))
    return subprocess.Popen(
        [sys.executable, "-P", script, model, revision, str(part)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | QUIET,
    )


def _follow(
    process: "subprocess.Popen[bytes]", told: Callable[[Mapping[str, object]], object]
) -> int:
    """Blocks until the process has ended."""
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            told(json.loads(line))
    return process.returncode


def _remove(folder: Path, gone: Path) -> None:
    """A rename first: nothing half deleted is ever listed."""
    gone.parent.mkdir(exist_ok=True)
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
