# SPDX-License-Identifier: Apache-2.0
"""Each query of each panel gives numbers, from a real Prometheus over a loaded store and over copies of a log."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.alarms.board_load import copies_loaded, store_loaded
from tests.alarms.prometheus import Prometheus
from tests.alarms.site import Site, copies, store_with_door
from tests.e2e.deploy.commands import tool
from tools.boards.description import BOARDS, REPLICATION

pytestmark = pytest.mark.e2e

VALUES = {"$namespace": "boards", "$topic": ".*", "$group": ".*", "$__rate_interval": "1m"}
OF_STORE = [board for board in BOARDS if board is not REPLICATION]
NUMBERS_S = 90.0
"""Longest wait for numbers: metrics by topic and group are measured each 15 s."""


def queries(boards: list[object]) -> dict[str, str]:
    """Return the queries of boards as Grafana sends them, by board, panel and name."""
    found = {}
    for board in BOARDS:
        for panel in board.panels if board in boards else ():
            for query in panel.queries:
                text = query.text
                for variable, value in VALUES.items():
                    text = text.replace(variable, value)
                assert "$" not in text
                found[f"{board.name}: {panel.title}: {query.legend}"] = text
    return found


def has_numbers(prometheus: Prometheus, expression: str) -> bool:
    """Return whether any series of an expression has a number."""
    return any(math.isfinite(float(series["value"][1])) for series in prometheus.query(expression))


@pytest.mark.parametrize(
    ("boards", "opened", "loaded"),
    [(OF_STORE, store_with_door, store_loaded), ([REPLICATION], copies, copies_loaded)],
    ids=["store", "replication"],
)
def test_each_query_gives_numbers(
    tmp_path: Path,
    boards: list[object],
    opened: Callable[[Path], Site],
    loaded: Callable[[Site], AbstractContextManager[None]],
) -> None:
    """No panel of a board stays empty over a store that is in use."""
    tool("prometheus")
    waiting = queries(boards)
    site = opened(tmp_path)
    try:
        prometheus = Prometheus(tmp_path, {"boards": site.targets})
        try:
            prometheus.wait_until_up(len(site.services))
            with loaded(site):
                end_s = time.monotonic() + NUMBERS_S
                while waiting and time.monotonic() < end_s:
                    waiting = {name: text for name, text in waiting.items() if not has_numbers(prometheus, text)}
                    time.sleep(1)
        finally:
            prometheus.stop()
    finally:
        site.stop()
    assert not waiting
