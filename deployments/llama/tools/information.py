"""Tools that return the time, the operating system and the working directory."""

import platform
from datetime import datetime

from deployments.llama.tools.tool import Answer, BuiltInTool, Params, ToolContext


class NoParams(Params):
    pass


def get_info(params: NoParams, context: ToolContext) -> Answer:
    return {"os": platform.system(), "cwd": "/".join((context.folder.root, *context.cwd))}


def get_datetime(params: NoParams, context: ToolContext) -> Answer:
    return {"datetime": datetime.now().astimezone().isoformat(timespec="seconds")}


GET_INFO = BuiltInTool(
    name="get_info",
    display_name="Get information",
    description="Tell the operating system and the working folder",
    params=NoParams,
    call=get_info,
)
GET_DATETIME = BuiltInTool(
    name="get_datetime",
    display_name="Get date and time",
    description="Tell the date and the time",
    params=NoParams,
    call=get_datetime,
)
