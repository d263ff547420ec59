"""The adapters that a model's name asks for, and when a begun request still asks for the same."""

from dataclasses import replace

import pytest

from deployments.contract.served_adapters import (
    AdapterTable,
    AskedAdapters,
    ServedAdapter,
    contents,
)
from kv.content import Adapter

POLITE = ServedAdapter(id=0, name="polite", path="/p", digest=b"p", rank=4)
TERSE = ServedAdapter(id=1, name="terse", path="/t", digest=b"t", rank=8, scale=0.5)
TABLE = AdapterTable.from_adapters([TERSE, POLITE])


def asked(name: str | None, *adapters: ServedAdapter) -> AskedAdapters:
    table = AdapterTable.from_adapters(adapters) if adapters else TABLE
    return AskedAdapters(asked=name, names=("base", "alias", "odd:polite"), table=table)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (None, None),
        ("base", None),
        ("alias", None),
        ("odd:polite", None),  # a name of the model itself
        ("polite", POLITE),
        ("base:polite", POLITE),
        ("alias:terse", TERSE),
        ("odd:polite:terse", TERSE),
        ("other:polite", None),
        (":polite", None),
        ("base:", None),
        ("rude", None),
    ],
)
def test_a_name_means_the_model_or_one_of_its_adapters(
    name: str | None, meant: ServedAdapter | None
) -> None:
    assert asked(name).named == meant


def test_an_adapter_that_is_named_has_its_own_scale_and_no_other_is_beside_it() -> None:
    scaled = replace(POLITE, default_scale=2.0)
    assert contents(asked("terse", scaled, TERSE).implied) == (Adapter("/t", b"t", 0.5),)
    assert contents(asked("base", scaled, TERSE).implied) == (Adapter("/p", b"p", 2.0),)
    assert contents(asked("terse", replace(TERSE, scale=0.0)).implied) == ()


@pytest.mark.parametrize(
    ("name", "later", "is_same"),
    [
        ("polite", [POLITE], True),
        ("polite", [replace(POLITE, default_scale=1.0), TERSE], True),
        ("polite", [replace(POLITE, path="/elsewhere")], True),
        ("polite", [replace(POLITE, digest=b"q")], False),
        ("polite", [TERSE], False),
        ("base", [TERSE], True),
        ("base", [replace(POLITE, default_scale=1.0)], False),
        ("new", [replace(POLITE, name="new")], False),  # it was the model that has any name
    ],
)
def test_a_request_is_prepared_again_only_where_its_own_adapters_changed(
    name: str, later: list[ServedAdapter], is_same: bool
) -> None:
    used = contents(asked(name).implied)
    assert asked(name).means_the_same(AdapterTable.from_adapters(later), used) == is_same


def test_an_adapter_that_a_request_chose_itself_must_still_be_there() -> None:
    used = [Adapter("/t", b"t", 0.25)]
    assert asked("base").means_the_same(AdapterTable.from_adapters([TERSE]), used)
    assert not asked("base").means_the_same(AdapterTable.from_adapters([POLITE]), used)


def test_a_table_has_one_version_for_one_content() -> None:
    assert AdapterTable.from_adapters([POLITE, TERSE]) == TABLE
    assert AdapterTable.from_adapters([POLITE]).version not in (TABLE.version, "")
    assert AdapterTable.from_adapters([]).version == ""
