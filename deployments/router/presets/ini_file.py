"""The presets file: an INI file by llama-server's grammar, read to what each section says.

Whatever is wrong with it is an error that names the file, the line and what is allowed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deployments.router.presets.keys import build_options, find_key, parse_value
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.paths import printable_name

ALL_MODELS = "*"  # the section that every other one is laid over
DEFAULT_SECTION = "default"  # where lines before any section belong
VERSION = "1"
HEADER = re.compile(r"\[([^\[\]]*)\]")


class PresetError(ValueError):
    """An operator wrote what can't be served. It says where that stands and what is allowed."""


@dataclass(frozen=True, slots=True)
class Line:
    key: str
    value: str
    number: int


@dataclass(frozen=True, slots=True)
class Section:
    """`options` is what it says itself; `line` is that of its header."""

    name: str
    line: int
    options: ModelOptions = field(default_factory=ModelOptions)


def read_presets(file: Path) -> dict[str, Section]:
    """Sections by name, in their order; "*" among them if it is there. Raises PresetError."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PresetError(f"the presets file {file} can't be read: {error}") from error
    return parse_presets(text, file)


def parse_presets(text: str, file: Path) -> dict[str, Section]:
    starts: dict[str, int] = {}
    lines: dict[str, list[Line]] = {}
    section = DEFAULT_SECTION
    for number, bare in _bare_lines(text):
        if header := HEADER.fullmatch(bare):
            section = _section_name(header[1], file, number)
            starts.setdefault(section, number)
            continue
        line = _line(bare, file, number)
        if not _is_version(line, file):
            starts.setdefault(section, number)
            lines.setdefault(section, []).append(line)
    return {
        name: Section(name, start, _options(lines.get(name, []), file, start))
        for name, start in starts.items()
    }


def _bare_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines that say something, with their numbers and without comments.

    A value can't have the mark of a comment in it.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if bare := re.split("[;#]", line, maxsplit=1)[0].strip():
            yield number, bare


def _section_name(inner: str, file: Path, number: int) -> str:
    if not (name := inner.strip()):
        raise PresetError(f"{file}:{number}: a section needs a name")
    try:
        return printable_name(name)
    except ValueError as error:
        raise PresetError(f"{file}:{number}: {error}") from error


def _line(bare: str, file: Path, number: int) -> Line:
    key, equals, value = bare.partition("=")
    if not equals or not key.strip():
        raise PresetError(f"{file}:{number}: {bare}: must be [section] or key = value")
    return Line(key.strip(), value.strip(), number)


def _is_version(line: Line, file: Path) -> bool:
    if line.key != "version":
        return False
    if line.value != VERSION:
        raise PresetError(f"{file}:{line.number}: version = {line.value}: must be {VERSION}")
    return True


def _options(lines: list[Line], file: Path, start: int) -> ModelOptions:
    values: dict[str, object] = {}
    lines_of_keys: dict[str, int] = {}
    for line in lines:
        try:
            key, inverted = find_key(line.key)
        except ValueError as error:
            raise PresetError(f"{file}:{line.number}: {error}") from error
        setting = f"{line.key} = {line.value}"
        if (first := lines_of_keys.setdefault(key.name, line.number)) != line.number:
            reason = f"{key.name} is said in line {first} too"
            raise PresetError(f"{file}:{line.number}: {setting}: {reason}")
        try:
            values[key.name] = parse_value(key, line.value, inverted)
        except ValueError as error:
            raise PresetError(f"{file}:{line.number}: {setting}: {error}") from error
    try:
        return build_options(values)
    except ValueError as error:
        raise PresetError(f"{file}:{start}: {error}") from error
