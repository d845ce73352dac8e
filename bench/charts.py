# SPDX-License-Identifier: Apache-2.0
"""The report as pictures: bars per scenario and system, latency percentiles, cost. PNG files, without a display."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.report import Subject, human
from bench.results import Results, Spread
from bench.scenarios.model import Scenario, Table

mpl.use("Agg")

COLOURS: Mapping[str, str] = {
    "reput": "#1b6ca8",
    "rocketmq": "#d9772b",
    "kafka": "#4a4a4a",
    "nats": "#3aa655",
    "redis": "#b8312f",
    "reput-store": "#1b6ca8",
    "rocketmq-store": "#d9772b",
    "reput-3": "#1b6ca8",
    "rocketmq-3": "#d9772b",
    "kafka-3": "#4a4a4a",
    "nats-3": "#3aa655",
    "reput-go": "#1b6ca8",
    "reput-java": "#4a90c2",
    "reput-grpcio-go": "#7fb2d9",
    "front-go": "#9a9a9a",
    "front-grpcio-go": "#c4c4c4",
}
PERCENTILES: Mapping[str, float] = {"p50_ms": 1.0, "p99_ms": 0.65, "p999_ms": 0.35}
"""Figure -> opacity of its bar."""
BAR_HEIGHT = 0.8
INCHES_PER_BAR = 0.28


def draw(subject: Subject, results: Results, folder: Path) -> list[Path]:
    """Write the charts that there are figures for. Returns their paths."""
    pictures = {
        "append.png": _bars(subject, results, ("append",), "messages_per_s", "messages/s (more is better)"),
        "read.png": _bars(subject, results, ("read", "lookup"), "messages_per_s", "messages/s (more is better)"),
        "store.png": _bars(subject, results, ("store",), "messages_per_s", "messages/s (more is better)"),
        "replicated.png": _bars(subject, results, ("replicated",), "messages_per_s", "messages/s (more is better)"),
        "cpu.png": _bars(
            subject,
            results,
            ("append", "read", "replicated"),
            "cpu_s_per_million",
            "server CPU seconds per million messages (less is better)",
        ),
        "latency.png": _latencies(subject, results),
    }
    written = []
    for name, figure in pictures.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=130, bbox_inches="tight")
            plt.close(figure)
            written.append(folder / name)
    return written


def _bars(subject: Subject, results: Results, kinds: Sequence[Table], figure: str, label: str) -> Figure | None:
    """Draw horizontal bars on a logarithmic axis: groups are scenarios, colours are systems, whiskers the spread."""
    rows = [
        (scenario, name, spread)
        for scenario in subject.scenarios
        if scenario.table in kinds
        for name in subject.peer_names
        if (spread := results.spread(scenario.name, name, figure)) is not None
    ]
    if not rows:
        return None
    picture, axes = plt.subplots(figsize=(9, 1.2 + INCHES_PER_BAR * len(rows)))
    place, ticks, seen = 0.0, [], ""
    for scenario, name, spread in rows:
        if scenario.name != seen:
            place += 0.9 if seen else 0.0
            seen = scenario.name
            ticks.append((place + 0.5 * (_count(rows, scenario) - 1), scenario.name))
        _bar(axes, place, name, spread)
        place += 1
    axes.set_yticks([tick for tick, _ in ticks], [text for _, text in ticks])
    axes.invert_yaxis()
    _finish(axes, label, subject, [name for _, name, _ in rows])
    return picture


def _bar(axes: Axes, place: float, name: str, spread: Spread) -> None:
    axes.barh(
        place,
        spread.median,
        height=BAR_HEIGHT,
        color=COLOURS.get(name, "#888888"),
        xerr=[[spread.median - spread.low], [spread.high - spread.median]],
        error_kw={"elinewidth": 1, "ecolor": "#222222"},
    )
    axes.annotate(
        human(spread.median), (spread.high, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7
    )


def _count(rows: Sequence[tuple[Scenario, str, Spread]], scenario: Scenario) -> int:
    return sum(1 for one, _, _ in rows if one is scenario)


def _finish(axes: Axes, label: str, subject: Subject, shown: Sequence[str]) -> None:
    _scale(axes)
    axes.set_xlabel(f"{label}, logarithmic")
    handles = [
        Rectangle((0, 0), 1, 1, color=COLOURS.get(name, "#888888")) for name in subject.peer_names if name in shown
    ]
    names = [text for name, text in subject.peer_names.items() if name in shown]
    axes.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def _scale(axes: Axes) -> None:
    """Make an axis logarithmic, from the power of ten below the shortest bar, with room for the numbers."""
    lengths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_width() > 0]
    axes.set_xscale("log")
    axes.set_xlim(10 ** math.floor(math.log10(min(lengths) * 0.99)), max(lengths) * 2.5)
    axes.margins(y=0.03)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", which="major", color="#dddddd")
    axes.set_axisbelow(True)


def _tick(value: float) -> str:
    """Return the text of a power of ten."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _latencies(subject: Subject, results: Results) -> Figure | None:
    """Draw a field for each scenario: for each system p50, p99 and p99.9, ever lighter."""
    scenarios = [
        scenario
        for scenario in subject.scenarios
        if scenario.table in ("latency", "calls")
        and any(results.spread(scenario.name, name, "p50_ms") for name in subject.peer_names)
    ]
    if not scenarios:
        return None
    column_count = min(3, len(scenarios))
    row_count = -(-len(scenarios) // column_count)
    picture, fields = plt.subplots(
        row_count, column_count, figsize=(4.6 * column_count, 3.0 * row_count), squeeze=False
    )
    for axes, scenario in zip(fields.flat, scenarios, strict=False):
        _latency(axes, subject, results, scenario)
    for axes in fields.flat[len(scenarios) :]:
        axes.set_visible(False)
    picture.tight_layout()
    return picture


def _latency(axes: Axes, subject: Subject, results: Results, scenario: Scenario) -> None:
    names = [name for name in subject.peer_names if results.spread(scenario.name, name, "p50_ms")]
    for index, name in enumerate(names):
        for offset, (figure, opacity) in enumerate(PERCENTILES.items()):
            spread = results.spread(scenario.name, name, figure)
            if spread is None:
                continue
            place = index + (offset - 1) * 0.27
            axes.barh(place, spread.median, height=0.25, color=COLOURS.get(name, "#888888"), alpha=opacity)
            axes.annotate(
                human(spread.median),
                (spread.median, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=6,
            )
    axes.set_yticks(range(len(names)), [subject.peer_names[name] for name in names])
    axes.invert_yaxis()
    _scale(axes)
    axes.set_title(scenario.name, fontsize=9)
    axes.set_xlabel("ms: p50, p99, p99.9 (less is better), logarithmic", fontsize=8)
    axes.tick_params(labelsize=7, labelbottom=True)
