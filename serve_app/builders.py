"""The builders of the applications. Each imports its own deployment: Serve builds every application
in a process by itself.
"""

from ray.serve.deployment import Application

from serve_app.ingress_arguments import IngressArguments, LlamaArguments, OpenAIArguments
from serve_app.router_arguments import RouterArguments
from serve_app.web_arguments import WebArguments


def router(args: RouterArguments) -> Application:
    from deployments.router.deployment import Router

    return Router.bind(*args.settings())  # type: ignore[attr-defined]


def openai(args: OpenAIArguments) -> Application:
    from deployments.openai.deployment import OpenAIIngress

    return OpenAIIngress.bind(*args.settings())  # type: ignore[attr-defined]


def anthropic(args: IngressArguments) -> Application:
    from deployments.anthropic.deployment import AnthropicIngress

    return AnthropicIngress.bind(*args.settings())  # type: ignore[attr-defined]


def llama(args: LlamaArguments) -> Application:
    from serve_app.applications.llama import LlamaIngress

    return LlamaIngress.bind(*args.settings())  # type: ignore[attr-defined]


def web(args: WebArguments) -> Application:
    from deployments.web.deployment import WebIngress

    return WebIngress.bind(*args.settings())  # type: ignore[attr-defined]
