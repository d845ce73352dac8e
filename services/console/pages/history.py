# SPDX-License-Identifier: Apache-2.0
"""History: the last 24 hours of topics and groups in memory of a fixed size, and charts of it.

Callers: the event loop. A restart of the console loses it.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from services.console.pages.chart import line

STEP_MS = 10_000
SAMPLES = 8_640
"""Samples of 24 hours."""
IDLE_SAMPLES = 360
"""After an hour in which all values are 0 the place of a series may go to another."""
POINTS = 180
"""Points of a chart, at most."""
NOW_POINTS = 3
"""Points at the end of a chart of which the last known value is that of now: a sample may be under way."""
SPANS_MS = {"15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000}

Kind = Literal["topic", "group"]
FIELDS: Mapping[Kind, tuple[str, ...]] = {"topic": ("in_per_s", "out_per_s"), "group": ("messages", "bytes", "seconds")}
"""The values of a sample. A value that is not known is NaN."""


class Chart(Struct, frozen=True):
    """A value over time."""

    values: tuple[float | None, ...]
    """The largest value in each equal part of the span, None where none is known."""
    most: float
    last: float | None
    """The value of now: of the last sample, or of the two samples before; None if these are not known."""
    lines: tuple[str, ...]
    """Points of SVG lines; a line ends where values are not known."""


class History(Struct, frozen=True):
    """The remembered samples of a topic or a group, as charts."""

    span: str
    start_ms: int
    end_ms: int
    since_ms: int | None
    """When the console began to remember."""
    is_remembered: bool
    """Whether it has a place; else others have all places."""
    charts: dict[str, Chart]


class Series(Struct):
    """The samples of a topic or a group: an array for each field, whose places are reused after 24 hours."""

    values: "tuple[array[float], ...]"
    last_slot: int
    active_slot: int
    """When a value was last above 0."""


class Ring:
    """All series: at most `count_max` of each kind, each of the same size. The arrays take all memory at once."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.since_ms: int | None = None
        self._series: dict[Kind, dict[str, Series]] = {"topic": {}, "group": {}}

    @property
    def size_bytes(self) -> int:
        """The bytes of all samples."""
        return sum(
            values.itemsize * len(values)
            for named in self._series.values()
            for series in named.values()
            for values in series.values
        )

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Return the names that have a place."""
        return tuple(self._series[kind])

    def put(self, kind: Kind, now_ms: int, values: Mapping[str, Sequence[float]]) -> None:
        """Add a sample of each name that has a place or gets one: a free place, or the place of an idle series."""
        if not self.count_max:
            return
        slot, known = now_ms // STEP_MS, self._series[kind]
        if any(series.last_slot > slot for series in known.values()):
            known.clear()  # the clock went back: times of before would be wrong
        self.since_ms = now_ms if self.since_ms is None else self.since_ms
        idle = sorted(
            (name for name, series in known.items() if slot - series.active_slot >= IDLE_SAMPLES),
            key=lambda name: known[name].active_slot,
            reverse=True,
        )
        for name, sample in values.items():
            is_active = any(value > 0 for value in sample)
            if name not in known:
                if len(known) >= self.count_max:
                    if not is_active or not idle:
                        continue
                    del known[idle.pop()]
                known[name] = _empty(kind, slot)
            elif is_active and name in idle:
                idle.remove(name)
            _write(known[name], slot, sample, is_active=is_active)

    def last(self, kind: Kind, field: str, now_ms: int) -> dict[str, float]:
        """Return the last known value of a field by name, as a chart shows it. Names without a value are left out."""
        at, end_slot = FIELDS[kind].index(field), now_ms // STEP_MS
        found = {}
        for name, series in self._series[kind].items():
            samples = (_at(series, at, slot) for slot in range(end_slot, end_slot - NOW_POINTS, -1))
            value = next((sample for sample in samples if not math.isnan(sample)), None)
            if value is not None:
                found[name] = float(f"{value:.7g}")
        return found

    def history(self, kind: Kind, name: str, span: str, now_ms: int) -> History:
        """Return the charts of a name in a span, the shortest for an unknown span."""
        span = span if span in SPANS_MS else next(iter(SPANS_MS))
        series, count = self._series[kind].get(name), SPANS_MS[span] // STEP_MS
        end_slot = now_ms // STEP_MS
        charts = {}
        for at, field in enumerate(FIELDS[kind]):
            samples = [_at(series, at, slot) for slot in range(end_slot - count + 1, end_slot + 1)] if series else []
            charts[field] = chart_of(samples)
        start_ms = (end_slot - count + 1) * STEP_MS
        return History(span, start_ms, now_ms, self.since_ms, series is not None, charts)


def _empty(kind: Kind, slot: int) -> Series:
    values = tuple(array("f", [math.nan]) * SAMPLES for _ in FIELDS[kind])
    return Series(values, slot - 1, slot)


def _write(series: Series, slot: int, sample: Sequence[float], *, is_active: bool) -> None:
    """Write a sample, and forget the samples between, which were missed."""
    for missed in range(max(series.last_slot + 1, slot - SAMPLES + 1), slot):
        for values in series.values:
            values[missed % SAMPLES] = math.nan
    for values, value in zip(series.values, sample, strict=True):
        values[slot % SAMPLES] = value
    series.last_slot = slot
    if is_active:
        series.active_slot = slot


def _at(series: Series, field: int, slot: int) -> float:
    if not series.last_slot - SAMPLES < slot <= series.last_slot:
        return math.nan
    return series.values[field][slot % SAMPLES]


def chart_of(samples: Sequence[float]) -> Chart:
    """Return the chart of samples, with the largest of each part: a peak is never lost."""
    size = max(-(-len(samples) // POINTS), 1)
    parts = [samples[at : at + size] for at in range(0, len(samples), size)]
    values = tuple(_most(part) for part in parts)
    known = [value for value in values if value is not None]
    last = next((value for value in reversed(values[-NOW_POINTS:]) if value is not None), None)
    return Chart(values, max(known, default=0.0), last, line(values))


def _most(part: Sequence[float]) -> float | None:
    known = [value for value in part if not math.isnan(value)]
    return float(f"{max(known):.7g}") if known else None
