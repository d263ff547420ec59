"""Throughput is of the time that steps took, in the last minute, whoever asks and how often."""

from deployments.engine.scheduler.throughput import WINDOW_S, Throughput


class Clock:
    now = 1000.25

    def __call__(self) -> float:
        return self.now


def test_it_is_of_the_time_that_steps_took() -> None:
    clock = Clock()
    speed = Throughput(clock)
    assert speed.per_second() == 0
    speed.observe(30, 0.5)
    speed.observe(0, 100.0)
    clock.now += 20
    speed.observe(10, 1.5)
    assert speed.per_second() == speed.per_second() == 20


def test_what_is_older_than_a_minute_does_not_count() -> None:
    clock = Clock()
    speed = Throughput(clock)
    speed.observe(100, 1.0)
    clock.now += WINDOW_S - 1
    speed.observe(10, 1.0)
    assert speed.per_second() == 55
    clock.now += 2
    assert speed.per_second() == 10
    clock.now += WINDOW_S
    assert speed.per_second() == 0
