"""The benchmark of a step's own cost measures each of its parts."""

from tests.bench.overhead import BATCHES, measure

PARTS = {"receive", "refill", "plan", "inputs", "sampling", "commit", "deliver", "rest"}


def test_every_part_of_a_step_is_timed() -> None:
    found = measure(rows=2, context=20, vocab=50, samplings=BATCHES["penalties"], waiting=0)
    assert found.keys() == PARTS | {"all", "worst"}
    parts = [found[part] for part in PARTS]
    assert all(0 < part < found["worst"] for part in parts)
    assert max(parts) < found["all"] <= found["worst"]
