"""The settings of the application `web`; read once, at the root."""

from dataclasses import dataclass

WEB = "web"  # the application and its deployment: by this name `llama` finds them
PREFIX = "/ui"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """page: the folder of the built page, which may come to be while the server runs.
    why_no_page: a file that says why the installation built none, where it wrote one.
    """

    page: str
    why_no_page: str
