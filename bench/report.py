# SPDX-License-Identifier: Apache-2.0
"""The report as Markdown: a table per kind of scenario, the cost, the goals, missing systems, versions and settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.goals import GOALS
from bench.results import Results, Spread
from bench.scenarios.model import Scenario, Table

OWN = {
    "store": "reput-store",
    "replicated": "reput-3",
    "calls": "reput-go",
    "gateway": "gateway",
    "receive": "reput-sharing",
}
"""Table -> the column that the others are compared with; reput if not named."""
TITLES: Mapping[Table, str] = {
    "append": "Append, messages/s",
    "latency": "Latency of single messages, ms",
    "calls": "Single calls of compiled clients, ms",
    "producers": "Single messages through the producers of each language, messages/s",
    "read": "Reading back, messages/s",
    "lookup": "Lookup by key",
    "replicated": "Append with three replicas, messages/s",
    "store": "Store alone, without a network, messages/s",
    "gateway": "RocketMQ 5's client for Java",
    "receive": "Receive and acknowledge each message, messages/s",
    "inside": "Inside Reput",
    "floors": "Floors",
}
COMPARED: Mapping[Table, Sequence[str]] = {
    "append": ("messages_per_s",),
    "latency": ("p50_ms", "p99_ms", "p999_ms", "messages_per_s"),
    "calls": ("p50_ms", "p99_ms", "p999_ms", "messages_per_s"),
    "producers": ("messages_per_s",),
    "read": ("messages_per_s",),
    "lookup": ("messages_per_s", "p50_ms", "p99_ms"),
    "replicated": ("messages_per_s",),
    "store": ("messages_per_s",),
    "gateway": ("messages_per_s", "p50_ms", "p99_ms"),
    "receive": ("messages_per_s",),
}
"""Figures that get a row for each scenario, with a column for each system."""
COSTS: Mapping[str, str] = {
    "cpu_s_per_million": "CPU seconds per million messages",
    "own_megabytes": "MB of memory, without pages of files",
    "resident_megabytes": "MB of memory, with pages of mapped files",
}
COSTED: Sequence[Table] = (
    *("append", "latency", "calls", "producers", "read", "lookup", "replicated", "gateway", "receive"),
)
INDEX_FIGURES = ("indexed_messages_per_s", "index_lag_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of a report, besides the results."""

    scenarios: Sequence[Scenario]
    peer_names: Mapping[str, str]
    """Column -> name of the system, in order."""
    machine: Mapping[str, object]
    seconds: float
    round_count: int
    round_done_count: int
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)


def human(value: float) -> str:
    """Return a number with three or four digits that matter."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.2f} M"
    if size >= 1e4:
        return f"{value / 1e3:.0f} k"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def is_lower_better(figure: str) -> bool:
    """Return whether a smaller value of the figure is better."""
    return figure.endswith("_ms") or (figure.endswith("_s") and not figure.endswith("_per_s"))


def spread_text(spread: Spread) -> str:
    """Return the median and, of several values, lowest and highest."""
    if spread.count == 1:
        return human(spread.median)
    return f"{human(spread.median)} ({human(spread.low)}–{human(spread.high)})"


def cell(results: Results, scenario: str, peer: str, figure: str, own: str) -> str:
    """Return the spread, for another system with how many times better Reput is, for a failed system the failure."""
    spread = results.spread(scenario, peer, figure)
    failed_count = len(results.errors(scenario, peer))
    if spread is None:
        return "**failed**" if failed_count else "–"
    text = spread_text(spread)
    if peer != own:
        mine, other = (scenario, own, figure), (scenario, peer, figure)
        ratio = results.ratio(other, mine) if is_lower_better(figure) else results.ratio(mine, other)
        text += f" · {ratio.median:.2f} ×" if ratio is not None else ""
    return text + (f" · {failed_count} failed" if failed_count else "")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table. The first column is text, the others are numbers."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join(['---', *['---:'] * (len(header) - 1)])}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def compared(subject: Subject, results: Results, kind: Table) -> Iterator[str]:
    """Yield a table of systems side by side."""
    scenarios = [scenario for scenario in subject.scenarios if scenario.table == kind]
    columns = [name for name in subject.peer_names if any(name in scenario.peers for scenario in scenarios)]
    if not columns:
        return
    own = OWN.get(kind, "reput")
    yield f"## {TITLES[kind]}"
    yield ""
    rows = []
    for scenario in scenarios:
        for figure in COMPARED[kind]:
            label = scenario.name if len(COMPARED[kind]) == 1 else f"{scenario.name} {figure_label(figure)}"
            rows.append([label, *(cell(results, scenario.name, name, figure, own) for name in columns)])
    yield from table(["scenario", *(subject.peer_names[name] for name in columns)], rows)


def costs(subject: Subject, results: Results) -> Iterator[str]:
    """Yield CPU time and memory of the servers."""
    scenarios = [one for one in subject.scenarios if one.table in COSTED]
    columns = [name for name in subject.peer_names if any(name in scenario.peers for scenario in scenarios)]
    if not any(results.spread(one.name, name, "cpu_s_per_million") for one in scenarios for name in columns):
        return
    yield "## Cost of the servers"
    yield ""
    yield "A cell has " + "; ".join(COSTS.values()) + "."
    yield ""
    rows = []
    for scenario in scenarios:
        row = [scenario.name]
        for name in columns:
            spreads = [results.spread(scenario.name, name, figure) for figure in COSTS]
            row.append(
                "–" if spreads[0] is None else " · ".join("–" if one is None else human(one.median) for one in spreads)
            )
        rows.append(row)
    yield from table(["scenario", *(subject.peer_names[name] for name in columns)], rows)


def indexing(subject: Subject, results: Results) -> Iterator[str]:
    """Yield whether the Indexer kept up with the appends."""
    rows = []
    for scenario in subject.scenarios:
        spreads = [results.spread(scenario.name, "reput", figure) for figure in ("messages_per_s", *INDEX_FIGURES)]
        if scenario.table == "append" and all(spreads):
            rows.append([scenario.name, *(spread_text(spread) for spread in spreads if spread is not None)])
    if rows:
        yield "## The Indexer behind the appends"
        yield ""
        yield from table(["scenario", "appended messages/s", "indexed messages/s", "lag after the last one, s"], rows)


def inside(subject: Subject, results: Results, kind: Table) -> Iterator[str]:
    """Yield measurements of our own: a row for each figure."""
    rows = []
    for scenario in subject.scenarios:
        if scenario.table != kind:
            continue
        for figure in results.figures(scenario.name, "reput"):
            spread = results.spread(scenario.name, "reput", figure)
            assert spread is not None
            rows.append([scenario.name, figure_label(figure), spread_text(spread)])
        if results.errors(scenario.name, "reput"):
            rows.append([scenario.name, "", "**failed**"])
        if scenario.name in subject.skipped:
            rows.append([scenario.name, "", f"skipped: {subject.skipped[scenario.name]}"])
    if rows:
        yield f"## {TITLES[kind]}"
        yield ""
        yield from table(["scenario", "figure", "median (lowest–highest)"], rows)


def goals(results: Results) -> Iterator[str]:
    """Yield every goal with its measured value."""
    yield "## Goals"
    yield ""
    rows = []
    for goal in GOALS:
        spread = goal.measured(results)
        rows.append([goal.sentence, goal.bound, spread_text(spread) if spread else "–", goal.verdict(results)])
    yield from table(["goal", "bound", "measured", ""], rows)


def troubles(subject: Subject, results: Results) -> Iterator[str]:
    """Yield the systems and runs that were left out or failed."""
    lines = [f"- {name} is not here: {text}" for name, text in subject.missing.items()]
    lines += [f"- {name} could not be prepared: {_line(text)}" for name, text in subject.broken.items()]
    lines += [f"- {name} was skipped: {text}" for name, text in subject.skipped.items()]
    lines += [
        f"- {run.scenario} on {run.peer} failed in round {run.round_number}: {_line(run.error)}"
        for run in results.runs
        if run.error
    ]
    if lines:
        yield from ("## Left out and failed", "", *lines, "")


def about(subject: Subject) -> Iterator[str]:
    """Yield scenarios, versions, settings."""
    yield from ("## Scenarios", "")
    yield from (f"- `{one.name}` ({one.mode}): {one.sentence}" for one in subject.scenarios)
    yield from ("", "## Versions and settings", "")
    for name, versions in subject.versions.items():
        yield f"- {subject.peer_names.get(name, name)}: " + ", ".join(
            f"{key} {value}" for key, value in versions.items()
        )
        for durability, settings in subject.settings.get(name, {}).items():
            yield f"    - {durability}: " + ", ".join(f"`{key}={value}`" for key, value in settings.items())


def markdown(subject: Subject, results: Results) -> str:
    """Return the whole report."""
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in subject.machine.items())
    lines = [
        "# Benchmark",
        "",
        f"{facts}.",
        "",
        (
            f"{subject.round_done_count} of {subject.round_count} rounds; loads of {subject.seconds:g} s, warmed up. "
            "A cell is the median (lowest–highest) of the rounds. "
            "“2.00 ×” behind another system's figure: Reput is so many times better, the median of the rounds' ratios."
        ),
        "",
    ]
    for kind in COMPARED:
        lines += compared(subject, results, kind)
    lines += [*indexing(subject, results), *costs(subject, results)]
    lines += [*inside(subject, results, "inside"), *inside(subject, results, "floors")]
    lines += [*goals(results), *troubles(subject, results), *about(subject)]
    return "\n".join(lines) + "\n"


def figure_label(figure: str) -> str:
    """Return a figure's name for people."""
    words = (
        figure.replace("p999", "p99.9").replace("_per_s", "/s").replace("gigabytes", "GB").replace("megabytes", "MB")
    )
    for ending in ("_ms", "_s"):
        if words.endswith(ending):
            words = f"{words.removesuffix(ending)}, {ending[1:]}"
    return words.replace("_", " ")


def _line(text: str) -> str:
    """Return a text of several lines as a single line, cut at some length."""
    joined = " ".join(text.split())
    return joined if len(joined) <= 600 else f"{joined[:200]} … {joined[-390:]}"
