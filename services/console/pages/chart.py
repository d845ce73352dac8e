# SPDX-License-Identifier: Apache-2.0
"""Charts: the shapes of a chart from its values. Templates draw them as SVG."""

from collections.abc import Sequence

from msgspec import Struct

WIDTH, HEIGHT = 720, 96
GAP = 2
SMALLEST = 1.5
"""Height of the smallest value above 0, so that it is seen."""


class Bar(Struct, frozen=True):
    """A bar of a chart of WIDTH × HEIGHT, from the bottom."""

    x: float
    y: float
    width: float
    height: float


def bars(values: Sequence[int]) -> tuple[Bar, ...]:
    """Return a bar for each value. The largest value has the whole height."""
    most = max(values, default=0)
    step = WIDTH / max(len(values), 1)
    found = []
    for at, value in enumerate(values):
        height = max(value / most * HEIGHT, SMALLEST) if value > 0 else 0.0
        found.append(Bar(round(at * step, 1), round(HEIGHT - height, 1), round(step - GAP, 1), round(height, 1)))
    return tuple(found)


def line(values: Sequence[float | None]) -> tuple[str, ...]:
    """Return the points of lines through values, at equal distances. A value that is not known ends a line.

    The largest value has the whole height. A value alone is a short line.
    """
    most = max((value for value in values if value is not None), default=0) or 1
    step = WIDTH / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        x, y = at * step, HEIGHT - max(value, 0) / most * (HEIGHT - GAP)
        lines[-1].append(f"{x:.1f},{y:.1f}")
    return tuple(" ".join(points if len(points) > 1 else points * 2) for points in lines if points)
