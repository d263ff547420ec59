"""The deployment of `/ui`: the chat page, in a process of its own that needs no model."""

import logging
from pathlib import Path

from starlette.types import ASGIApp

from deployments.ingress.deployment import HttpIngress, ingress_deployment
from deployments.ingress.settings import IngressSettings
from deployments.web.files import HOW_TO_BUILD, INDEX
from deployments.web.routes import app
from deployments.web.settings import WEB, WebSettings

logger = logging.getLogger(__name__)


@ingress_deployment(WEB)
class WebIngress(HttpIngress):
    def __init__(self, settings: IngressSettings, web: WebSettings) -> None:
        super().__init__(settings)
        self._web = web
        if lacking := _what_is_lacking(Path(web.page) / INDEX, Path(web.why_no_page)):
            logger.warning("%s", lacking)

    def begin(self, settings: IngressSettings) -> ASGIApp:
        return app(self._web, settings)

    async def is_up(self) -> bool:
        """That it answers at all says it."""
        return True


def _what_is_lacking(index: Path, failure: Path) -> str:
    """What the operator should know of the page's build; "" where all is well."""
    try:
        why = f". The last try: {failure.read_text(errors='replace').strip()}"
    except OSError:
        why = ""
    if not index.is_file():
        return HOW_TO_BUILD + why
    return f"The web page is of an older version{why}" if why else ""
