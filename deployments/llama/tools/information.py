"""Tools that return the time, the operating system and the working directory."""

import platform
from datetime import datetime

from deployments.llama.tools.tool import Answer, Params, Place, Tool


class Nothing(Params):
    pass


def get_info(params: Nothing, place: Place) -> Answer:
    return {"os": platform.system(), "cwd": "/".join((place.folder.root, *place.cwd))}


def get_datetime(params: Nothing, place: Place) -> Answer:
    return {"datetime": datetime.now().astimezone().isoformat(timespec="seconds")}


GET_INFO = Tool(
    name="get_info",
    display_name="Get information",
    description="Tell the operating system and the working folder",
    params=Nothing,
    call=get_info,
)
GET_DATETIME = Tool(
    name="get_datetime",
    display_name="Get date and time",
    description="Tell the date and the time",
    params=Nothing,
    call=get_datetime,
)
