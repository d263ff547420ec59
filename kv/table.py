"""Maps each task to its pages and to the tokens it found cached, as rows of arrays.

Each group of layers has a page table. The rows in use are always the first ones, and what a row
does not use is filled up at once: a batch of all tasks, in the order of their rows, reads the
arrays as they are.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kv.arrays import IntArray


class TaskTable:
    """Page tables of up to `max_tasks` tasks, each of up to `max_pages` pages in each group.

    A task has equally many pages in all groups, counted with those that it no longer holds: the
    first ones of a group may have been freed out of its window.
    """

    def __init__(self, max_tasks: int, max_pages: int, n_groups: int = 1) -> None:
        # Around a task's own pages stands its first one again: attention multiplies what it masks
        # by 0, and another task's page could hold a NaN.
        self._pages = np.zeros((n_groups, max_tasks, max_pages), dtype=np.int64)
        self._first = np.zeros((n_groups, max_tasks), dtype=np.int64)  # number of the first held
        self._n_pages = np.zeros(max_tasks, dtype=np.int64)
        self._cached = np.zeros(max_tasks, dtype=np.int64)
        self._rows: dict[str, int] = {}
        self._ids: list[str] = []  # by row

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._rows

    @property
    def n_groups(self) -> int:
        return len(self._pages)

    def task_ids(self) -> list[str]:
        """Returns the ids of all tasks in the table, in the order of their insertion."""
        return list(self._rows)

    def insert(
        self, task_id: str, n: int, pages: Sequence[Sequence[int]], cached_tokens: int
    ) -> None:
        """A new task with `n` pages, whose `cached_tokens` tokens are computed. pages [groups]: the
        last ones of each, as many as it needs. Asserts that the task has no row yet and that one is
        free."""
        assert task_id not in self._rows, f"task {task_id} is in the table already"
        assert len(self._ids) < self._pages.shape[1], "more tasks than rows"
        row = self._rows[task_id] = len(self._ids)
        self._ids.append(task_id)
        self._n_pages[row] = n
        self._cached[row] = cached_tokens
        for group, own in enumerate(pages):
            self._first[group, row] = n - len(own)
            self._pages[group, row, n - len(own) : n] = own
        self._fill(row)

    def remove(self, task_id: str) -> list[int]:
        """Forgets a task; returns its pages in order. The last row takes the place of its row."""
        pages = self.pages(task_id)
        row, last = self._rows.pop(task_id), len(self._ids) - 1
        moved = self._ids.pop()
        if row != last:
            self._ids[row] = moved
            self._rows[moved] = row
            for column in (self._n_pages, self._cached):
                column[row] = column[last]
            for columns in (self._pages, self._first):
                columns[:, row] = columns[:, last]
        return pages

    def n_pages(self, task_id: str) -> int:
        """Pages that the task has in a group, with those freed out of the window. KeyError for an
        unknown task, here and below."""
        return int(self._n_pages[self._rows[task_id]])

    def cached_tokens(self, task_id: str) -> int:
        """Tokens of the task that were found in the cache."""
        return int(self._cached[self._rows[task_id]])

    def pages(self, task_id: str) -> list[int]:
        """The pages that a task holds, in the order of its tokens."""
        return self._pages_from(self._rows[task_id], 0)

    def page(self, task_id: str, index: int, group: int = 0) -> int:
        """The task's page number `index`, from 0."""
        return int(self._pages[group, self._rows[task_id], index])

    def first_page(self, task_id: str, group: int) -> int:
        """The number of the first page that the task holds in a group."""
        return int(self._first[group, self._rows[task_id]])

    def replace(self, task_id: str, index: int, page: int, group: int = 0) -> None:
        """Puts another page with the same content in the place of one."""
        row = self._rows[task_id]
        self._pages[group, row, index] = page
        if index == self._first[group, row]:
            self._fill(row)

    def append(self, task_id: str, pages: Sequence[Sequence[int]], cached_tokens: int = 0) -> None:
        """Adds pages [groups], equally many, behind those of the task; `cached_tokens` of their
        tokens are computed."""
        row = self._rows[task_id]
        start, n = int(self._n_pages[row]), len(pages[0])
        for group, own in enumerate(pages):
            self._pages[group, row, start : start + n] = own
        self._n_pages[row] = start + n
        self._cached[row] += cached_tokens
        if start == 0 and n:
            self._fill(row)

    def shorten(self, task_id: str, n_pages: int) -> list[int]:
        """Removes a task's pages behind the first `n_pages`; returns them."""
        row = self._rows[task_id]
        taken = self._pages_from(row, n_pages)
        self._n_pages[row] = min(n_pages, int(self._n_pages[row]))
        self._fill(row)
        return taken

    def free_out_of_window(self, task_id: str, group: int, first: int) -> list[int]:
        """Removes the pages of a group before page number `first`, which the task has; returns
        them."""
        row = self._rows[task_id]
        before = int(self._first[group, row])
        if first <= before:
            return []
        taken: list[int] = self._pages[group, row, before:first].tolist()
        self._first[group, row] = first
        self._fill(row)
        return taken

    def page_table(self, task_ids: Sequence[str]) -> IntArray:
        """Pages of some tasks [groups, tasks, longest], padded with each row's own first page.

        Nothing is copied where these are all tasks `in_order`: it changes with the table then.
        """
        rows = self._rows_of(task_ids)
        longest = int(self._n_pages[rows].max(initial=0))
        if len(rows) == len(self._ids) and bool((rows[1:] > rows[:-1]).all()):
            return self._pages[:, : len(rows), :longest]
        tables: IntArray = self._pages[:, rows, :longest]
        return tables

    def in_order(self, task_ids: Sequence[str]) -> list[int]:
        """Indices of some tasks, sorted by the tasks' rows."""
        indices: list[int] = self._rows_of(task_ids).argsort().tolist()
        return indices

    def missing(
        self, task_ids: Sequence[str], n_pages: IntArray, bounds: Iterable[int | None]
    ) -> int:
        """Pages that some tasks lack to have `n_pages` [tasks] each in all groups, all together.
        bounds [groups]: the most that a task holds in a group; None: all."""
        rows = self._rows_of(task_ids)
        lacking = n_pages - self._n_pages[rows]
        total = 0
        for first, bound in zip(self._first, bounds, strict=True):
            room = lacking
            if bound is not None:
                room = np.minimum(lacking, bound - (self._n_pages[rows] - first[rows]))
            total += int(room.clip(min=0).sum())
        return total

    def references(self) -> list[int]:
        """Every page of every task, once for each task that holds it."""
        return [page for task_id in self._rows for page in self.pages(task_id)]

    def check(self) -> None:
        """Asserts that the rows in use are the first ones, and filled up."""
        assert {task_id: row for row, task_id in enumerate(self._ids)} == self._rows
        for row, n_pages in enumerate(self._n_pages[: len(self._ids)].tolist()):
            for pages, first in zip(self._pages[:, row], self._first[:, row].tolist(), strict=True):
                assert n_pages == 0 or first < n_pages, "a row's last page was freed"
                around = [*pages[:first].tolist(), *pages[n_pages:].tolist()]
                assert n_pages == 0 or {*around} <= {pages[first]}, "a row is not filled up"

    def _rows_of(self, task_ids: Sequence[str]) -> IntArray:
        rows = self._rows
        return np.array([rows[task_id] for task_id in task_ids], dtype=np.int64)

    def _pages_from(self, row: int, begin: int) -> list[int]:
        """Pages from number `begin` on. Those of the same tokens in several groups are neighbours,
        so that they are freed and evicted together."""
        end = int(self._n_pages[row])
        if self.n_groups == 1:
            first = max(begin, int(self._first[0, row]))
            own: list[int] = self._pages[0, row, first:end].tolist()
            return own
        firsts = self._first[:, row].tolist()
        tables = self._pages[:, row, :end].tolist()
        return [
            pages[index]
            for index in range(begin, end)
            for pages, first in zip(tables, firsts, strict=True)
            if index >= first
        ]

    def _fill(self, row: int) -> None:
        n = self._n_pages[row]
        for pages, first in zip(self._pages[:, row], self._first[:, row].tolist(), strict=True):
            pages[:first] = pages[n:] = pages[first]
