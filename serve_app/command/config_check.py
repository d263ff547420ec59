"""Checks the settings of a config's applications before anything of it is started."""

from collections.abc import Iterable
from typing import get_type_hints

from pydantic import ValidationError
from ray._common.utils import import_attr
from ray.serve.schema import ServeApplicationSchema

PACKAGE = "serve_app:"


class SettingsError(Exception):
    """Tells what is wrong, in which application."""


def check_settings(applications: Iterable[ServeApplicationSchema]) -> None:
    """Raises SettingsError for the first that its builder would refuse."""
    for application in applications:
        if not application.import_path.startswith(PACKAGE):
            continue
        try:
            builder = import_attr(application.import_path)
            arguments = get_type_hints(builder)["args"]
            arguments.model_validate(application.args).settings()
        except ValidationError as error:
            raise SettingsError(f"{application.name}: {_listed(error)}") from error
        except (AttributeError, OSError, ValueError) as error:
            raise SettingsError(f"{application.name}: {error}") from error


def _listed(error: ValidationError) -> str:
    """Lists the errors without values, which may be keys."""
    found = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, detail["loc"]))
        said = detail["msg"].removeprefix("Value error, ")
        found.append(said if said.startswith(where) else f"{where}: {said}")
    return "; ".join(found)
