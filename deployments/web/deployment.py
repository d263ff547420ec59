"""The deployment of `/ui`: the chat page and its store, in a process that needs no model."""

import logging
from pathlib import Path

from starlette.types import ASGIApp

from deployments.ingress.deployment import HttpIngress, ingress_deployment
from deployments.ingress.settings import IngressSettings
from deployments.store.database import NO_STORE
from deployments.web.api.opening import StoreOpener
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
        if web.store == NO_STORE:
            self._opener = None
        else:
            self._opener = StoreOpener(web.store, web.limits)

    def begin(self, settings: IngressSettings) -> ASGIApp:
        if self._opener is not None:
            self._opener.begin()
        return app(self._web, settings, self._opener)

    async def is_up(self) -> bool:
        """Returns True: that it answers at all says it."""
        return True


def _what_is_lacking(index: Path, failure: Path) -> str:
    """Returns what the operator should know of the page's build; "" where all is well."""
    try:
        why = f". The last try: {failure.read_text(errors='replace').strip()}"
    except OSError:
        why = ""
    if not index.is_file():
        return HOW_TO_BUILD + why
    return f"The web page is of an older version{why}" if why else ""
