"""Maps each task to its pages and to the tokens it found cached, as rows of one array.

The rows in use are always the first ones, and what a row does not use is filled up at once: a batch
of all tasks, in the order of their rows, reads the array as it is.
"""

from collections.abc import Sequence

import numpy as np

from kv.arrays import IntArray


class TaskTable:
    """Page tables of up to `max_tasks` tasks, each of up to `max_pages` pages."""

    def __init__(self, max_tasks: int, max_pages: int) -> None:
        # Behind a task's own pages stands its first one again: attention multiplies what it masks
        # by 0, and another task's page could hold a NaN.
        self._pages = np.zeros((max_tasks, max_pages), dtype=np.int64)
        self._n_pages = np.zeros(max_tasks, dtype=np.int64)
        self._cached = np.zeros(max_tasks, dtype=np.int64)
        self._rows: dict[str, int] = {}
        self._ids: list[str] = []  # by row

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._rows

    def task_ids(self) -> list[str]:
        """Of all tasks in the table, in the order of their insertion."""
        return list(self._rows)

    def insert(self, task_id: str, pages: Sequence[int], cached_tokens: int) -> None:
        """A new task with these pages. Asserts that it has no row yet and that one is free."""
        assert task_id not in self._rows, f"task {task_id} is in the table already"
        assert len(self._ids) < len(self._pages), "more tasks than rows"
        row = self._rows[task_id] = len(self._ids)
        self._ids.append(task_id)
        self._n_pages[row] = 0
        self._cached[row] = 0
        self.append(task_id, pages, cached_tokens)

    def remove(self, task_id: str) -> list[int]:
        """Forgets a task; returns its pages in order. The last row takes the place of its row."""
        pages = self.pages(task_id)
        row, last = self._rows.pop(task_id), len(self._ids) - 1
        moved = self._ids.pop()
        if row != last:
            self._ids[row] = moved
            self._rows[moved] = row
            for column in (self._pages, self._n_pages, self._cached):
                column[row] = column[last]
        return pages

    def n_pages(self, task_id: str) -> int:
        """Pages that the task has. KeyError for an unknown task, here and below."""
        return int(self._n_pages[self._rows[task_id]])

    def cached_tokens(self, task_id: str) -> int:
        """Tokens of the task that were found in the cache."""
        return int(self._cached[self._rows[task_id]])

    def pages(self, task_id: str) -> list[int]:
        """The task's pages in the order of its tokens."""
        row = self._rows[task_id]
        pages: list[int] = self._pages[row, : self._n_pages[row]].tolist()
        return pages

    def page(self, task_id: str, index: int) -> int:
        """The task's page number `index`, from 0."""
        return int(self._pages[self._rows[task_id], index])

    def replace(self, task_id: str, index: int, page: int) -> None:
        """Puts another page with the same content in the place of one."""
        row = self._rows[task_id]
        self._pages[row, index] = page
        if index == 0:
            self._fill(row)

    def append(self, task_id: str, pages: Sequence[int], cached_tokens: int = 0) -> None:
        """Adds pages behind those of the task; `cached_tokens` of their tokens are computed."""
        row = self._rows[task_id]
        start = int(self._n_pages[row])
        self._pages[row, start : start + len(pages)] = pages
        self._n_pages[row] = start + len(pages)
        self._cached[row] += cached_tokens
        if start == 0 and pages:
            self._fill(row)

    def shorten(self, task_id: str, n_pages: int) -> list[int]:
        """Removes a task's pages behind the first `n_pages`; returns them."""
        taken = self.pages(task_id)[n_pages:]
        row = self._rows[task_id]
        self._n_pages[row] -= len(taken)
        self._fill(row)
        return taken

    def page_table(self, task_ids: Sequence[str]) -> IntArray:
        """Pages of some tasks [tasks, longest], padded with each row's own first page.

        Nothing is copied where these are all tasks `in_order`: it changes with the table then.
        """
        rows = self._rows_of(task_ids)
        longest = int(self._n_pages[rows].max(initial=0))
        if len(rows) == len(self._ids) and bool((rows[1:] > rows[:-1]).all()):
            return self._pages[: len(rows), :longest]
        tables: IntArray = self._pages[rows, :longest]
        return tables

    def in_order(self, task_ids: Sequence[str]) -> list[int]:
        """Indices of some tasks, sorted by the tasks' rows."""
        indices: list[int] = self._rows_of(task_ids).argsort().tolist()
        return indices

    def missing(self, task_ids: Sequence[str], n_pages: IntArray) -> int:
        """Pages that some tasks lack to have `n_pages` [tasks] each, all together."""
        lacking = n_pages - self._n_pages[self._rows_of(task_ids)]
        return int(lacking.clip(min=0).sum())

    def references(self) -> list[int]:
        """Every page of every task, once for each task that holds it."""
        return [page for task_id in self._rows for page in self.pages(task_id)]

    def check(self) -> None:
        """Asserts that the rows in use are the first ones, and filled up."""
        assert {task_id: row for row, task_id in enumerate(self._ids)} == self._rows
        for row, n_pages in enumerate(self._n_pages[: len(self._ids)].tolist()):
            behind = self._pages[row, n_pages:]
            assert n_pages == 0 or (behind == self._pages[row, 0]).all(), "a row is not filled up"

    def _rows_of(self, task_ids: Sequence[str]) -> IntArray:
        rows = self._rows
        return np.array([rows[task_id] for task_id in task_ids], dtype=np.int64)

    def _fill(self, row: int) -> None:
        self._pages[row, self._n_pages[row] :] = self._pages[row, 0]
