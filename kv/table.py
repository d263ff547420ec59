"""Maps each task to its pages and to the tokens it found cached, as rows of one array."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class TaskTable:
    """Page tables of up to `max_tasks` tasks, each of up to `max_pages` pages."""

    def __init__(self, max_tasks: int, max_pages: int) -> None:
        self._pages = np.zeros((max_tasks, max_pages), dtype=np.int64)
        self._n_pages = np.zeros(max_tasks, dtype=np.int64)
        self._cached = np.zeros(max_tasks, dtype=np.int64)
        self._rows: dict[str, int] = {}
        self._free_rows = list(range(max_tasks - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._rows

    def task_ids(self) -> list[str]:
        return list(self._rows)

    def insert(self, task_id: str, pages: Sequence[int], cached_tokens: int) -> None:
        assert task_id not in self._rows, f"task {task_id} is in the table already"
        row = self._free_rows.pop()
        self._rows[task_id] = row
        self._pages[row, : len(pages)] = pages
        self._n_pages[row] = len(pages)
        self._cached[row] = cached_tokens

    def remove(self, task_id: str) -> list[int]:
        """Forgets a task; returns its pages in order."""
        pages = self.pages(task_id)
        self._free_rows.append(self._rows.pop(task_id))
        return pages

    def n_pages(self, task_id: str) -> int:
        return int(self._n_pages[self._rows[task_id]])

    def cached_tokens(self, task_id: str) -> int:
        return int(self._cached[self._rows[task_id]])

    def pages(self, task_id: str) -> list[int]:
        row = self._rows[task_id]
        pages: list[int] = self._pages[row, : self._n_pages[row]].tolist()
        return pages

    def page(self, task_id: str, index: int) -> int:
        return int(self._pages[self._rows[task_id], index])

    def replace(self, task_id: str, index: int, page: int) -> None:
        self._pages[self._rows[task_id], index] = page

    def append(self, task_id: str, pages: Sequence[int], cached_tokens: int = 0) -> None:
        row = self._rows[task_id]
        start = self._n_pages[row]
        self._pages[row, start : start + len(pages)] = pages
        self._n_pages[row] += len(pages)
        self._cached[row] += cached_tokens

    def shorten(self, task_id: str, n_pages: int) -> list[int]:
        """Takes a task's pages behind the first `n_pages`; returns them."""
        taken = self.pages(task_id)[n_pages:]
        self._n_pages[self._rows[task_id]] -= len(taken)
        return taken

    def rows(self, task_ids: Sequence[str]) -> NDArray[np.int64]:
        """Page tables of some tasks [tasks, longest], padded with each row's own first page.

        Attention multiplies what it masks by 0: another task's page could hold a NaN.
        """
        rows = [self._rows[task_id] for task_id in task_ids]
        longest = int(self._n_pages[rows].max(initial=0))
        tables: NDArray[np.int64] = self._pages[rows, :longest]
        return np.where(np.arange(longest) < self._n_pages[rows, None], tables, tables[:, :1])

    def references(self) -> list[int]:
        """Every page of every task, once for each task that holds it."""
        return [page for task_id in self._rows for page in self.pages(task_id)]
