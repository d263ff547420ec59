"""What a person runs: one builder an application, listed in `serve.yaml`."""

from ray.serve.deployment import Application

from deployments.llama.deployment import LlamaIngress
from deployments.openai.deployment import OpenAIIngress
from deployments.router.deployment import Router
from serve_app.settings import IngressArguments, RouterArguments


def router(args: RouterArguments) -> Application:
    return Router.bind([args.model_settings()])  # type: ignore[attr-defined]


def openai(args: IngressArguments) -> Application:
    return OpenAIIngress.bind(args.ingress_settings())  # type: ignore[attr-defined]


def llama(args: IngressArguments) -> Application:
    return LlamaIngress.bind(args.ingress_settings())  # type: ignore[attr-defined]
