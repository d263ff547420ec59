"""A tag, or a file's name, finds the file that llama.cpp finds by it, with all its parts."""

from pathlib import Path

import pytest

from deployments.engine.loading.gguf.names import (
    chosen_files,
    first_part,
    lacks_parts,
    listed_models,
    model_name,
    models_of,
    names_gguf,
    split_hub_name,
)

SPLIT = ["big/m-Q8_0-00001-of-00002.gguf", "big/m-Q8_0-00002-of-00002.gguf"]
FILES = [
    *("README.md", "config.json", "mmproj-m-Q4_K_M.gguf", "m-imatrix.gguf", "mtp-m-Q4_K_M.gguf"),
    *("m-IQ2_XXS.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "M.f16.gguf", *SPLIT),
]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ("", ["m-Q4_K_M.gguf"]),
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("q4_k_m", ["m-Q4_K_M.gguf"]),
        ("K_S", ["m-Q4_K_S.gguf"]),  # llama.cpp looks for the end of a part of the name
        ("Q4_K", []),
        ("F16", ["M.f16.gguf"]),
        ("Q8_0", SPLIT),
        ("Q.K_M", []),
        ("m-iq2_xxs.GGUF", ["m-IQ2_XXS.gguf"]),
        (SPLIT[1], SPLIT),
        ("m-Q8_0.gguf", []),
        ("mmproj-m-Q4_K_M.gguf", []),
        ("BF16", []),
    ],
)
def test_a_choice_is_of_one_model(choice: str, found: list[str]) -> None:
    assert chosen_files(FILES, choice) == found


def test_without_a_tag_it_is_the_first_of_the_usual_ones() -> None:
    rest = [name for name in FILES if "Q4_K_M" not in name]
    assert chosen_files(rest) == SPLIT
    assert chosen_files([name for name in rest if "Q8" not in name]) == ["M.f16.gguf"]
    assert chosen_files(["config.json", "mmproj.gguf"]) == []


def test_parts_are_of_one_model_and_may_be_missing() -> None:
    assert len(models_of(FILES)) == 5
    assert not lacks_parts(SPLIT)
    assert not lacks_parts(["m.gguf"])
    assert lacks_parts(chosen_files(SPLIT[1:], "Q8_0"))
    assert first_part(Path("/x/m-00003-of-00004.gguf")) == Path("/x/m-00001-of-00004.gguf")
    assert first_part(Path("/x/m-3-of-4.gguf")) == Path("/x/m-3-of-4.gguf")
    assert model_name("m-Q8_0-00002-of-00002.gguf") == "m-Q8_0"
    assert model_name("m-Q8_0.gguf") == "m-Q8_0"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("owner/name:Q4_K_M", ("owner/name", "Q4_K_M")),
        ("owner/na.me-GGUF:sub/m-1.gguf", ("owner/na.me-GGUF", "sub/m-1.gguf")),
        *((name, None) for name in ("owner/name", "name:Q4", "a/b/c:Q4", "a/b:", "a/b:c:d")),
        *((name, None) for name in ("a/b:../x.gguf", "a/b:/x.gguf", "a/b:x/", "/x/m.gguf")),
    ],
)
def test_a_name_of_the_hub_has_a_repository_and_a_choice(
    name: str, found: tuple[str, str] | None
) -> None:
    assert split_hub_name(name) == found
    assert names_gguf(name) == (found is not None or name.endswith(".gguf"))


def test_an_error_lists_few_models() -> None:
    assert listed_models(["a.gguf", "b.gguf"]) == "; it has a.gguf, b.gguf"
    assert listed_models([f"{n}.gguf" for n in range(10)]).endswith("7.gguf and 2 more")
    assert listed_models(["x.bin"]) == ""
