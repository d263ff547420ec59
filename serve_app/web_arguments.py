"""The `args` of the application `web` in `serve.yaml`, checked once at start."""

from pathlib import Path

from deployments.ingress.settings import IngressSettings
from deployments.web.settings import WebSettings
from serve_app.ingress_arguments import HttpArguments

SOURCES = Path(__file__).parent / "web"


class WebArguments(HttpArguments):
    """Arguments of the application `web`."""

    def ingress_settings(self) -> IngressSettings:
        """Raises ValueError for keys that can't be used."""
        known = self.known_keys()
        return IngressSettings(
            body_limit=self.max_body_bytes,
            body_budget=self.max_inflight_body_bytes,
            body_timeout_s=self.body_timeout_s,
            api_keys=known.keys,
            key_owners=known.owners,
            hosts=self.known_hosts(),
        )

    def web_settings(self) -> WebSettings:
        return WebSettings(
            page=str(SOURCES / "dist"), why_no_page=str(SOURCES / "build_failure.txt")
        )
