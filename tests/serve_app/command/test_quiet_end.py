"""A stop hides what Ray says of calls that it has ended, and nothing else."""

import io

from serve_app.command.quiet_end import ENDED_BY_US, WithoutEndedCalls


def test_lines_of_ended_calls_are_left_out_with_their_ends() -> None:
    kept = io.StringIO()
    stream = WithoutEndedCalls(kept)
    print("Stopping.", file=stream)
    print(f"(raylet) Task x failed. {ENDED_BY_US}, so the task will be retried.", file=stream)
    print("A fault", file=stream)
    stream.flush()
    assert kept.getvalue() == "Stopping.\nA fault\n"
