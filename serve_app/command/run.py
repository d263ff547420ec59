"""Runs a config until it is told to stop: what is wrong with it is the last that it says."""

import logging
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

import ray
from ray import serve
from ray.serve._private.api import serve_start
from ray.serve._private.application_state import StatusOverview
from ray.serve._private.client import ServeControllerClient
from ray.serve._private.constants import SERVE_NAMESPACE
from ray.serve._private.utils import get_head_node_id
from ray.serve.config import ControllerOptions, gRPCOptions
from ray.serve.context import _get_global_client
from ray.serve.schema import ApplicationStatus, ServeDeploySchema
from ray.serve.scripts import parse_runtime_env_args

from deployments.ingress.settings import STOP_TIMEOUT_S
from serve_app.command.config_check import SettingsError, check_settings
from serve_app.command.port_check import PortTaken, check_port
from serve_app.command.quiet_end import hide_ended_calls
from serve_app.command.starting_answers import announce_starting, nodes_take_a_middleware
from serve_app.command.stop import StopSignals, end_children, stop

RUNNING, DEPLOY_FAILED = ApplicationStatus.RUNNING, ApplicationStatus.DEPLOY_FAILED
NODE_IS_LATE = "node timed out during startup"  # Ray's words
LOOK_S = 0.5  # between looks at the applications of a start
TOKEN = (
    "Ray keeps a token at home, and can't write it: {error}. Set HOME to a folder that can be "
    "written, or RAY_AUTH_TOKEN to a secret of your own (`openssl rand -hex 32`)"
)
JOINING = "To join a Ray that asks for a token, set RAY_AUTH_MODE=token"


class StartError(Exception):
    """`status`: with which the command exits."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class StartTeller:
    """Tells how a start goes, line by line.

    command: what was typed, which begins an error.
    shows_logs: those of Ray's processes come to the console, too.
    """

    command = "serve run"
    shows_logs = True

    def deploying(self) -> None:
        print("The applications are being deployed. Ctrl-C stops the server.")

    def running(self, told_to_stop: threading.Event) -> None:
        """Called once all applications run. Raises StartError to end the server."""
        print("All applications run.")

    def failing(self) -> None:
        """Called before the error is said, or where a signal ends the start."""

    def stopping(self) -> None:
        print("Stopping: streams have some seconds to end. A second signal ends all at once.")


def run_until_stopped(
    config: ServeDeploySchema,
    address: str | None,
    runtime_env: Mapping[str, str | None],
    teller: StartTeller,
) -> None:
    _print_at_once()
    signals = StopSignals()
    joined = True  # until it is known: what others started is left alone
    try:
        check_settings(config.applications)
        proxies = announce_starting(config.applications)
        _join_ray(address, runtime_env, teller.shows_logs)
        joined = _get_global_client(raise_if_no_controller_running=False) is not None
        signals.listen()
        if not joined and _is_head():
            check_port(config.http_options.host, config.http_options.port)
        if joined or _ray_is_ours() or not nodes_take_a_middleware():
            proxies = {}  # they run already, have it, or can't have it
        client = _start(config, proxies)
        signals.listen()
        signals.serving()
        client.deploy_apps(config, _blocking=False)
        teller.deploying()
        _watch(client, [application.name for application in config.applications], signals, teller)
    except (SettingsError, PortTaken, StartError) as error:
        teller.failing()
        _fail(f"{teller.command}: {error}", getattr(error, "status", 1), joined)
    except KeyboardInterrupt:
        teller.failing()
        ray.shutdown()
        sys.exit(130)
    teller.stopping()
    hide_ended_calls()
    stop(*_ingresses(config))
    sys.exit(0)


def _print_at_once() -> None:
    """Makes a line of the output appear when it is printed, also in a file or a pipe, as that of a
    service is.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _join_ray(address: str | None, runtime_env: Mapping[str, str | None], shows_logs: bool) -> None:
    """Tries twice where Ray gives its own node 30 s: a busy machine is ready for it soon after."""
    environment = parse_runtime_env_args(**runtime_env)
    init = partial(
        ray.init,
        address,
        namespace=SERVE_NAMESPACE,
        runtime_env=environment,
        log_to_driver=shows_logs,
        logging_level=logging.INFO if shows_logs else logging.ERROR,
    )
    try:
        init()
    except ConnectionError as error:
        raise StartError(f"{error}. {JOINING}") from error
    except OSError as error:
        if ".ray" in Path(str(error.filename)).parts:
            raise StartError(TOKEN.format(error=error)) from error
        raise
    except Exception as error:
        if NODE_IS_LATE not in str(error):
            raise
        print("Ray's node was not ready in time; it is started once more.")
        end_children()  # Ray forgets what it had started
        init()


def _is_head() -> bool:
    found: bool = ray.get_runtime_context().get_node_id() == get_head_node_id()
    return found


def _ray_is_ours() -> bool:
    """Whether this process has started Ray's node, and not joined one."""
    node = ray._private.worker._global_node  # None where Ray's client is used
    return node is not None and bool(node.is_head())


def _start(config: ServeDeploySchema, proxies: Mapping[str, str]) -> ServeControllerClient:
    """`proxies`: environment variables for Serve's proxies, where these are not running yet."""
    given = (config.controller_options and config.controller_options.runtime_env) or {}
    variables = {**proxies, **given.get("env_vars", {})}
    options = ControllerOptions(runtime_env={"env_vars": variables}) if variables else None
    return serve_start(
        http_options=config.http_options.model_dump(),
        proxy_location=config.proxy_location,
        grpc_options=gRPCOptions(**config.grpc_options.model_dump()),
        controller_options=options,
    )


def _watch(
    client: ServeControllerClient, names: list[str], signals: StopSignals, teller: StartTeller
) -> None:
    """Returns when it is told to stop. Raises StartError for an application that does not start."""
    starting = set(names)
    while starting and not signals.told.wait(LOOK_S):
        for found in client.list_serve_statuses():
            if found.name in starting and found.app_status.status == DEPLOY_FAILED:
                raise StartError(f"{found.name} could not be started: {_reasons(found)}")
            if found.app_status.status == RUNNING:
                starting.discard(found.name)
    if not starting:
        teller.running(signals.told)
    signals.told.wait()


def _reasons(found: StatusOverview) -> str:
    """Serve says of a deployment what its constructor raised; the last line says why."""
    said = [deployment.message.strip() for deployment in found.deployment_statuses]
    return "\n".join([found.app_status.message.strip(), *filter(None, said)])


def _ingresses(config: ServeDeploySchema) -> tuple[list[str], float]:
    """The applications with HTTP, and the most seconds that one leaves to its answers."""
    found = [
        application for application in config.applications if application.route_prefix is not None
    ]
    waits = [float(application.args.get("stop_timeout_s", STOP_TIMEOUT_S)) for application in found]
    return [application.name for application in found], max(waits, default=0.0)


def _fail(message: str, status: int, joined: bool) -> NoReturn:
    """The message is last, after all that Ray prints of its end."""
    if ray.is_initialized():
        if not joined:
            with suppress(Exception):  # Ray may be half started
                serve.shutdown()
        ray.shutdown()
    print(message, file=sys.stderr, flush=True)
    sys.exit(status)
