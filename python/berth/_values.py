# SPDX-License-Identifier: MIT
"""Turns the values of a model of another program into items of the planner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable

from .planner import PlanInput, make_items


@dataclass
class Value:
    """A value that a model computes or receives."""

    name: str
    size: int
    """bytes"""
    first: int
    """the step that computes it"""
    last: int
    """the last step that reads it"""
    op: str
    """the op that computes it; "" for an input"""


@dataclass
class Values:
    """The values of a model in the order of its steps. Views share the memory of their source."""

    n_steps: int
    rows: list[Value] = field(default_factory=list)
    _row_of: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, size: int, step: int, op: str) -> None:
        """Adds a value that takes memory."""
        self._row_of[name] = len(self.rows)
        self.rows.append(Value(name, size, step, step, op))

    def add_view(self, name: str, source: str) -> None:
        """Adds a value in the memory of another one. A view of a weight takes no memory."""
        if source in self._row_of:
            self._row_of[name] = self._row_of[source]

    def use(self, names: Iterable[str], step: int) -> None:
        """Says that a step reads values."""
        for name in names:
            if name in self._row_of:
                row = self.rows[self._row_of[name]]
                row.last = max(row.last, step)

    def finish(self, title: str, outputs: Iterable[str], align: int) -> PlanInput:
        """Returns the items. The outputs are alive to the last step."""
        self.use(outputs, max(self.n_steps - 1, 0))
        rows = [row for row in self.rows if row.size > 0]
        items = make_items(
            [row.first for row in rows], [row.last for row in rows], [row.size for row in rows], align=align
        )
        return PlanInput(items, [row.name for row in rows], ops=[row.op for row in rows], title=title)
