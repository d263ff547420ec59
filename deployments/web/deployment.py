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
        if not (Path(web.page) / INDEX).is_file():
            logger.warning("%s%s", HOW_TO_BUILD, _why(Path(web.why_no_page)))

    def begin(self, settings: IngressSettings) -> ASGIApp:
        return app(self._web, settings)

    async def is_up(self) -> bool:
        """That it answers at all says it."""
        return True


def _why(file: Path) -> str:
    try:
        return f". The last try: {file.read_text(errors='replace').strip()}"
    except OSError:
        return ""
