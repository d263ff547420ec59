"""The benchmark of a step's own cost measures something."""

from tests.bench.overhead import BATCHES, measure


def test_every_part_of_a_step_is_timed() -> None:
    found = measure(rows=2, context=20, vocab=50, samplings=BATCHES["penalties"], waiting=0)
    assert min(found["sampling"], found["inputs"], found["commit"], found["all"]) > 0
