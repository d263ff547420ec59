"""Answers clients while the applications start: a 503 in the form of the protocol of each path,
which SDKs try again, in the place of the 404 of a proxy that knows no paths yet.
"""

import atexit
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from ray.serve._private.haproxy import get_haproxy_binary
from ray.serve.schema import ServeApplicationSchema
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress import haproxy_answers, proxy_answers
from deployments.ingress.error_bodies import anthropic_envelope, llama_envelope, openai_envelope
from deployments.ingress.http.errors import ErrorFormat
from deployments.ingress.http.sse import encode

STARTING = RequestError(ErrorKind.UNAVAILABLE, "The server is starting; try again soon")
FORMS: Mapping[str, ErrorFormat] = {
    "serve_app:openai": openai_envelope,
    "serve_app:anthropic": anthropic_envelope,
}
CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
HAPROXY = "RAY_SERVE_HAPROXY_BINARY_PATH"
NODES_S = 30.0


def announce_starting(applications: Iterable[ServeApplicationSchema]) -> Mapping[str, str]:
    """Tells the proxies of a Ray that is started from here: they have this process' environment.

    Returns what those of a Ray that runs already need in theirs, where HAProxy is not told.
    """
    request_id = uuid.uuid4().hex
    bodies = {
        application.route_prefix: encode(
            FORMS.get(application.import_path, llama_envelope)(STARTING, request_id)[1]
        ).decode()
        for application in applications
        if application.route_prefix is not None
    }
    os.environ[proxy_answers.VARIABLE] = json.dumps(bodies)
    callback = proxy_answers.middlewares
    ours = f"{callback.__module__}:{callback.__name__}"
    is_ours = os.environ.setdefault(CALLBACK, ours) == ours
    if RAY_SERVE_ENABLE_HA_PROXY and HAPROXY not in os.environ:
        os.environ[haproxy_answers.BINARY] = get_haproxy_binary()
        os.environ[HAPROXY] = str(_program(Path(haproxy_answers.__file__).read_text()))
    if not is_ours:  # an operator's own middleware, which other machines may not have
        return {}
    return {proxy_answers.VARIABLE: os.environ[proxy_answers.VARIABLE], CALLBACK: ours}


def nodes_take_a_middleware() -> bool:
    """Whether proxies of the joined cluster can have ours, by what its nodes say.

    A proxy can't start with a middleware that it can't import, and has one at most.
    """
    living = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    strategies = [NodeAffinitySchedulingStrategy(node, soft=True) for node in living]
    ask = ray.remote(num_cpus=0, max_retries=0)(_takes_a_middleware)
    asked = [ask.options(scheduling_strategy=strategy).remote() for strategy in strategies]
    try:
        return all(ray.get(asked, timeout=NODES_S))
    except RayError as error:  # this module can't be imported there, or the node has no time for it
        told = str(error).strip().rpartition("\n")[2]
        print(f"Until the applications run, the cluster's proxies answer 404: {told}")
        return False


def _takes_a_middleware() -> bool:
    return CALLBACK not in os.environ


def _program(source: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="manta-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = folder / "haproxy"
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(0o700)
    return program
