"""A job that never ends."""

from typing import BinaryIO

from deployments.sandbox.worker import serve


def answer(line: bytes, jobs: BinaryIO, answers: BinaryIO) -> None:
    while True:
        pass


if __name__ == "__main__":
    serve(answer, niceness=0, max_memory_bytes=1 << 30, max_cpu_s=0.05)
