"""How much a run tries: `python -m tests` a fixed sample, with `--exhaustive` everything.

What hypothesis tries is the same in every run, so no change fails by what it did not touch. Nor has
a case a deadline: laws hold on a busy machine too.
"""

import asyncio
import atexit
import gc
import inspect
import signal

import pytest
from hypothesis import settings

from tests import effort
from tests.check import sharing
from tests.databases import postgres, url  # noqa: F401 (fixtures)

settings.register_profile("check", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("exhaustive", deadline=None, derandomize=True, max_examples=200)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="try every case, seed and field")
    parser.addoption("--device", default="cpu", help="of the engines in tests/engine: cpu or cuda")


def pytest_configure(config: pytest.Config) -> None:
    effort.exhaustive = config.getoption("--exhaustive")
    effort.device = config.getoption("--device")
    settings.load_profile("exhaustive" if effort.exhaustive else "check")
    # A shell ignores Ctrl-C for what it runs in the background, and children inherit that; but the
    # tests' servers are ended by it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine, in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.function(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Freezes what was imported. It lives to the end: no garbage collection looks at it again."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # else libraries say that their own objects are left


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> sharing.Sharing:
    return sharing.Sharing(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = sharing.in_order(items)
    if effort.exhaustive:
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
