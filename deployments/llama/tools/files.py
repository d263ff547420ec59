"""Tools that read and change one file."""

import base64
from io import StringIO
from typing import Annotated

from pydantic import Field

from deployments.llama.tools.folder import ToolError
from deployments.llama.tools.tool import Answer, BuiltInTool, Params, ToolContext

MAX_FILE_BYTES = 32 << 20  # of a file
MAX_SHOWN_BYTES = 16 << 10  # bytes shown at once
MAX_EDITS = 256

PathParam = Annotated[str, Field(description="Path of the file, relative to the working folder")]


class ReadFile(Params):
    path: PathParam
    start_line: Annotated[int, Field(ge=1, description="First line to show, from 1 on")] = 1
    end_line: Annotated[int, Field(ge=1, description="Last line to show")] | None = None
    append_loc: Annotated[bool, Field(description="Put its number before each line")] = False


class WriteFile(Params):
    path: PathParam
    content: str


class Edit(Params):
    old_text: Annotated[str, Field(min_length=1, description="Comes exactly once in the file")]
    new_text: str


class EditFile(Params):
    path: PathParam
    edits: Annotated[list[Edit], Field(min_length=1, max_length=MAX_EDITS)]


def read_file(params: ReadFile, context: ToolContext) -> Answer:
    content = context.folder.read(context.path(params.path), MAX_FILE_BYTES)
    if context.as_base64:
        return {"base64": base64.b64encode(content).decode(), "bytes": len(content)}
    lines = StringIO(_text(params.path, content), newline="\n").readlines()
    shown = lines[params.start_line - 1 : params.end_line]
    if params.append_loc:
        shown = [f"{number}: {line}" for number, line in enumerate(shown, params.start_line)]
    text = "".join(shown)
    if len(text.encode()) > MAX_SHOWN_BYTES:
        message = (
            f"more than {MAX_SHOWN_BYTES} bytes in {len(shown)} lines: ask for a range of lines"
        )
        raise ToolError(message)
    return {"plain_text_response": text}


def write_file(params: WriteFile, context: ToolContext) -> Answer:
    content = params.content.encode()
    context.folder.write(context.path(params.path), content)
    return {
        "result": "file written successfully",
        "path": params.path,
        "bytes": len(content),
    }


def edit_file(params: EditFile, context: ToolContext) -> Answer:
    path = context.path(params.path)
    text = _text(params.path, context.folder.read(path, MAX_FILE_BYTES))
    spans = sorted(_span(text, edit) for edit in params.edits)
    parts, end = [], 0
    for start, stop, new_text in spans:
        if start < end:
            raise ToolError("edits overlap")
        parts += [text[end:start], new_text]
        end = stop
    edited = "".join([*parts, text[end:]]).encode()
    if len(edited) > MAX_FILE_BYTES:
        raise ToolError(f"the file would have more than {MAX_FILE_BYTES} bytes")
    context.folder.write(path, edited)
    return {"result": "file edited successfully", "edits_applied": len(spans)}


def _span(text: str, edit: Edit) -> tuple[int, int, str]:
    start = text.find(edit.old_text)
    if start < 0:
        raise ToolError(f"old_text is not in the file: {edit.old_text[:80]!r}")
    if text.find(edit.old_text, start + 1) >= 0:
        raise ToolError(f"old_text is in the file more than once: {edit.old_text[:80]!r}")
    return start, start + len(edit.old_text), edit.new_text


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as failure:
        raise ToolError(f"{name} is not UTF-8 text") from failure


READ_FILE = BuiltInTool(
    name="read_file",
    display_name="Read file",
    description="Read a text file, or a range of its lines",
    params=ReadFile,
    call=read_file,
)
WRITE_FILE = BuiltInTool(
    name="write_file",
    display_name="Write file",
    description="Write a text file, with the folders that it needs; what it held is lost",
    params=WriteFile,
    call=write_file,
    writes=True,
)
EDIT_FILE = BuiltInTool(
    name="edit_file",
    display_name="Edit file",
    description="Replace pieces of a text file, each of which comes exactly once in it",
    params=EditFile,
    call=edit_file,
    writes=True,
)
