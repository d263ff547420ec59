"""The builders of the applications, which `serve.yaml` lists."""

from ray.serve.deployment import Application

from deployments.anthropic.deployment import AnthropicIngress
from deployments.llama.deployment import LlamaIngress
from deployments.openai.deployment import OpenAIIngress
from deployments.router.deployment import Router
from deployments.web.deployment import WebIngress
from serve_app.ingress_arguments import IngressArguments, LlamaArguments, OpenAIArguments
from serve_app.router_arguments import RouterArguments
from serve_app.web_arguments import WebArguments


def router(args: RouterArguments) -> Application:
    return Router.bind(  # type: ignore[attr-defined]
        args.checked_sources(),
        args.capacity_settings(),
        args.routing_settings(),
        args.download_settings(),
    )


def openai(args: OpenAIArguments) -> Application:
    return OpenAIIngress.bind(args.ingress_settings(), args.store)  # type: ignore[attr-defined]


def anthropic(args: IngressArguments) -> Application:
    return AnthropicIngress.bind(args.ingress_settings())  # type: ignore[attr-defined]


def llama(args: LlamaArguments) -> Application:
    settings = args.ingress_settings()
    return LlamaIngress.bind(settings, args.tool_settings(), args.store)  # type: ignore[attr-defined]


def web(args: WebArguments) -> Application:
    return WebIngress.bind(args.ingress_settings(), args.web_settings())  # type: ignore[attr-defined]
