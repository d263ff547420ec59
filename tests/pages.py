"""The code blocks of the pages, so that tests can run what readers copy."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# made by a script
CARDS = {f"serve_app/demo/{name}/README.md" for name in ("model", "draft", "vision")}
PAGES = sorted(
    page
    for page in [
        *ROOT.glob("*.md"),
        *ROOT.glob("deployments/**/*.md"),
        *ROOT.glob("serve_app/**/*.md"),
    ]
    if str(page.relative_to(ROOT)) not in CARDS and "node_modules" not in page.parts
)
# Their blocks build and run other servers, so tests only read the commands in them.
BENCHMARKS = sorted((ROOT / "tests" / "bench").glob("*.md"))
ADDRESS = "http://127.0.0.1:8000"
_BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code in a page. It repeats a part of `file`, which is relative to the page."""

    page: Path
    number: int
    language: str
    text: str
    file: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}:{self.language}"

    @property
    def asks_a_server(self) -> bool:
        return ADDRESS in self.text


def blocks(*languages: str) -> list[Block]:
    """All blocks of some languages, in all pages."""
    return [
        Block(page, number, match[2], match[3], match[1])
        for page in PAGES
        for number, match in enumerate(_BLOCK.finditer(page.read_text()), 1)
        if match[2] in languages
    ]


def unread_fences(page: Path) -> int:
    """The number of fences that begin or end no block, such as indented ones."""
    text = page.read_text()
    return len(re.findall(r"```|~~~", text)) - 2 * len(_BLOCK.findall(text))


def languages() -> set[str]:
    return {match[2] for page in PAGES for match in _BLOCK.finditer(page.read_text())}


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    _, _, section = page.read_text().partition(f"\n## {heading}\n")
    lines = section.partition("\n|")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
