# SPDX-License-Identifier: Apache-2.0
"""Board, Panel and Query: the values that describe a board.

In an expression `{S}` becomes the label of the store, which a variable of the board selects, and `{R}` the range that
Grafana chooses for a rate. `{T}` and `{G}` are the chosen topics and groups. No I/O.
"""

from dataclasses import dataclass

STORE_LABEL = 'namespace=~"$namespace"'
MARKS = {
    "{S}": "{" + STORE_LABEL + "}",
    "{T}": "{" + STORE_LABEL + ',topic=~"$topic"}',
    "{G}": "{" + STORE_LABEL + ',group=~"$group"}',
    "{R}": "[$__rate_interval]",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel, and the name of its lines."""

    expression: str
    legend: str

    @property
    def text(self) -> str:
        """The expression as Grafana has it."""
        text = self.expression
        for mark, value in MARKS.items():
            text = text.replace(mark, value)
        return text


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel: a title, a sentence for readers, a unit of Grafana, and queries."""

    title: str
    sentence: str
    unit: str
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A board. `variables` maps the name of a variable beside the store's to the metric whose label it has."""

    name: str
    title: str
    sentence: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()
