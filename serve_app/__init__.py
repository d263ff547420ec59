"""What a person runs: one builder an application, listed in `serve.yaml`."""

from ray.serve.deployment import Application

from deployments.llama.deployment import LlamaIngress
from deployments.openai.deployment import OpenAIIngress
from deployments.router.deployment import Router
from serve_app.settings import Arguments, OpenAIArguments, RouterArguments


def router(args: RouterArguments) -> Application:
    return Router.bind([args.model_settings()])  # type: ignore[attr-defined]


def openai(args: OpenAIArguments) -> Application:
    return OpenAIIngress.bind(args.keep_alive_s, args.max_body_bytes)  # type: ignore[attr-defined]


def llama(args: Arguments) -> Application:
    return LlamaIngress.bind()  # type: ignore[attr-defined]
