# SPDX-License-Identifier: Apache-2.0
"""The output of the demo: steps, rates, comparisons, tables, the verdict."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.comparisons import Comparison, Comparisons
from demo.load import LoadRates
from demo.source import DELAYED_MINUTES, CarrierDelay

WIDTH = 110
"""Columns when the output is not a terminal."""


class Report:
    """Prints to standard output, with progress bars only on a terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=WIDTH)

    def step(self, title: str) -> None:
        """Prints the title of a step."""
        self.console.print()
        self.console.rule(f"[bold]{escape(title)}", align="left")

    def line(self, text: str) -> None:
        """Prints a line of plain text."""
        self.console.print(escape(text))

    def comparison(self, comparison: Comparison) -> None:
        """Prints a comparison: the question, the answer, and whether it is equal to the source's answer."""
        verdict = "[red]DIFFERENT" if comparison.difference else "[green]equal"
        shown = escape(comparison.difference or comparison.shown)
        self.console.print(f"  {verdict}[/]  {escape(comparison.question)}: [bold]{shown}[/]")

    def difference(self, comparison: Comparison) -> None:
        """Prints a comparison if the answers differ."""
        if comparison.difference:
            self.comparison(comparison)

    def failure(self, text: str) -> None:
        """Prints the reason for which the run can't continue."""
        self.console.print(f"[red bold]failed:[/] {escape(text)}")

    @contextmanager
    def progress_bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Shows a progress bar. Yields the function that takes the number of finished items."""
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.advance(task, count)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Shows a spinner during work of unknown length."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bar:
            bar.add_task(what, total=None)
            yield

    def rates(self, rates: LoadRates) -> None:
        """Prints the rates of the load."""
        megabytes = rates.log_size_bytes / 1e6
        self.line(
            f"  appended {rates.message_count:,} messages in {rates.append_seconds:.2f} s: "
            f"{rates.messages_per_second:,.0f} messages/s, {megabytes / rates.append_seconds:,.0f} MB/s of log "
            f"({megabytes:,.0f} MB)"
        )
        self.line(f"  indexed {rates.index_lag_seconds * 1000:,.0f} ms after the last acknowledgement")

    def delays(self, delays: Sequence[CarrierDelay], airlines: Mapping[str, str]) -> None:
        """Prints the table of delays by carrier."""
        table = Table(title="Departure delay by carrier, computed by Spark from the export", title_justify="left")
        table.add_column("carrier")
        for name in ("flights", "departed", "mean delay (min)", f"{DELAYED_MINUTES} min late or more"):
            table.add_column(name, justify="right")
        for delay in sorted(delays, key=lambda delay: -delay.mean_delay_minutes):
            table.add_row(
                f"{airlines.get(delay.carrier, '?')} ({delay.carrier})",
                f"{delay.flight_count:,}",
                f"{delay.departed_count:,}",
                f"{delay.mean_delay_minutes:.1f}",
                f"{delay.delayed_count / delay.departed_count:.0%}" if delay.departed_count else "-",
            )
        self.console.print(table)

    def verdict(self, comparisons: Comparisons) -> int:
        """Prints the count of comparisons and every difference. Returns the exit code."""
        self.console.print()
        for different in comparisons.different:
            question, difference = escape(different.question), escape(different.difference)
            self.console.print(f"[red]DIFFERENT[/]  {question}: {difference}")
        equal_count = comparisons.count - len(comparisons.different)
        self.line(f"{comparisons.count} comparisons with the source table, {equal_count} equal")
        return 1 if comparisons.different or not comparisons.count else 0
