"""The arguments of the built-in tools in `serve.yaml`."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from deployments.llama.tools.settings import ToolSettings
from serve_app.ingress_arguments import LlamaArguments


def test_tools_are_off_unless_a_folder_is_named() -> None:
    assert LlamaArguments().tool_settings() is None


def test_the_folder_is_a_whole_path_and_hosts_are_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    arguments = LlamaArguments(tools_folder=str(tmp_path / "link"), tools_hosts=("Manta.Example",))
    expected = ToolSettings(folder=str(tmp_path.resolve()), hosts=("manta.example",))
    assert arguments.tool_settings() == expected


def test_hosts_without_a_folder_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"tools_hosts: the tools are off"):
        LlamaArguments(tools_hosts=("manta.example",)).tool_settings()


def test_a_folder_without_a_name_is_not_where_the_server_stands() -> None:
    with pytest.raises(ValidationError, match="tools_folder"):
        LlamaArguments(tools_folder="")


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no directory"):
        LlamaArguments(tools_folder=str(tmp_path / "none")).tool_settings()
