"""The pages are true: code blocks run, links lead somewhere, tables are of the settings."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel
from ray.serve.schema import ServeDeploySchema

from deployments.router.presets.ini_file import parse_presets
from serve_app.guides.tables import FOLDER, TABLES, page
from serve_app.ingress_arguments import IngressArguments, LlamaArguments, OpenAIArguments
from serve_app.router_arguments import RouterArguments
from serve_app.web_arguments import WebArguments
from tests.e2e.server import THROUGHPUT_MODE
from tests.pages import BENCHMARKS, PAGES, ROOT, Block, blocks, languages, unread_fences

README_LINES = 150  # what a newcomer reads
ARGUMENTS: dict[str, type[BaseModel]] = {
    "router": RouterArguments,
    "openai": OpenAIArguments,
    "anthropic": IngressArguments,
    "llama": LlamaArguments,
    "web": WebArguments,
}
COMMAND = re.compile(r"python -m ((?:serve_app|tests)[\w.]*)")
SERVE_CONFIG = re.compile(r"<<END\n(proxy_location: .*?)\nEND\n", re.DOTALL)
MENTIONED = re.compile(
    r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md)|(?:deployments|kv|serve_app|tests)/[\w./-]+)`"
)
FILES = [
    file
    for folder in ("deployments", "kv", "serve_app", "tests")
    for file in (ROOT / folder).rglob("*.*")
]
LINK = re.compile(r"\]\(([^)#:]*)(#[^)]*)?\)")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_the_readme_has_two_commands_of_one_line() -> None:
    commands = [block.text for block in blocks("bash")]
    assert [block.page for block in blocks("bash")] == [ROOT / "README.md"] * 2
    assert [command.count("\n") for command in commands] == [1, 1]


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_a_guide_are_those_of_the_settings(name: str) -> None:
    assert (FOLDER / name).read_text() == page(name), "run python -m serve_app.guides"


def anchors(path: Path) -> set[str]:
    """GitHub's anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {
        "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize(
    "path", [*PAGES, *BENCHMARKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        there = path.parent / target if target else path
        assert there.exists(), f"{path.name}: no {target}"
        assert not anchor or anchor in anchors(there), f"{path.name}: no heading {anchor}"


@pytest.mark.parametrize(
    "path", [*PAGES, *BENCHMARKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_command_names_a_module_that_runs(path: Path) -> None:
    for module in COMMAND.findall(path.read_text()):
        found = ROOT.joinpath(*module.split("."))
        assert (found / "__main__.py").exists() or "__main__" in found.with_suffix(
            ".py"
        ).read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_page_mentions_exists(path: Path) -> None:
    for name in MENTIONED.findall(path.read_text()):
        known = (ROOT / name).exists() or any(str(file).endswith(f"/{name}") for file in FILES)
        assert known, f"{path.relative_to(ROOT)}: there is no {name}"


def test_the_configurations_of_the_benchmarks_are_valid() -> None:
    found = [text for page in BENCHMARKS for text in SERVE_CONFIG.findall(page.read_text())]
    assert found
    for text in found:
        for application in ServeDeploySchema.model_validate(yaml.safe_load(text)).applications:
            ARGUMENTS[application.name].model_validate(application.args)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_a_page_is_one_that_the_tests_read(path: Path) -> None:
    assert unread_fences(path) == 0


def test_every_kind_of_block_has_a_test() -> None:
    assert languages() <= {"", "bash", "sh", "python", "yaml", "ini", "mermaid"}  # "" is a picture


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_yaml_block_is_a_valid_part_of_a_serve_config(block: Block) -> None:
    read = yaml.safe_load(block.text)
    config = {"applications": read} if isinstance(read, list) else {"applications": [], **read}
    for application in ServeDeploySchema.model_validate(config).applications:
        ARGUMENTS[application.name].model_validate(application.args)


@pytest.mark.parametrize("block", blocks("ini"), ids=str)
def test_an_ini_block_is_a_valid_presets_file(block: Block) -> None:
    assert parse_presets(block.text, Path("/etc/manta/models.ini"))


@pytest.mark.parametrize("block", [block for block in blocks("python") if block.file], ids=str)
def test_a_block_that_repeats_a_part_of_a_file_is_in_it(block: Block) -> None:
    assert block.file is not None
    assert block.text in (block.page.parent / block.file).read_text()


@pytest.mark.parametrize(
    "block",
    [block for block in blocks("python") if not block.file and not block.asks_a_server],
    ids=str,
)
def test_a_python_block_runs(block: Block) -> None:
    exec(compile(block.text, str(block), "exec"), {})


@pytest.mark.parametrize(
    "block", [block for block in blocks("sh") if not block.asks_a_server], ids=str
)
def test_a_shell_block_is_the_command_that_tests_of_servers_run(block: Block) -> None:
    modes = " ".join(f"{name}={value}" for name, value in THROUGHPUT_MODE.items())
    assert block.text == f"{modes} .venv/bin/serve run serve_app/serve.yaml\n"
