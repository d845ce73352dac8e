# SPDX-License-Identifier: Apache-2.0
"""The demo's oracle and its comparisons: a demo that can't fail would prove nothing."""

import io
import json

import pyarrow as pa
import pytest
from rich.console import Console

from demo.comparisons import Comparison, Comparisons, difference_of
from demo.report import Report
from demo.source import FLIGHT_COUNT, CarrierDelay, Source, from_table, read_source


def table(rows: int = 3) -> pa.Table:
    """A few flights, the last without tail number and cancelled."""
    return pa.table(
        {
            "carrier": ["UA", "B6", "UA"],
            "flight": [15, 371, 15],
            "tailnum": ["N14228", "N3", None],
            "dep_delay": pa.array([15, -2, None], pa.int64()),
            "time_hour": pa.array([1_357_034_400, 0, 3600], pa.timestamp("s", tz="UTC")),
        }
    ).slice(0, rows)


@pytest.fixture
def source() -> Source:
    """The few flights."""
    return from_table(table(), {"UA": "United"})


def test_rows_become_messages(source: Source) -> None:
    """Bodies are the JSON of the rows, keys are tail number and flight, the born time is the scheduled hour."""
    assert json.loads(source.bodies[0]) == {
        "carrier": "UA",
        "flight": 15,
        "tailnum": "N14228",
        "dep_delay": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }
    assert [source.keys(row) for row in range(3)] == [("N14228", "UA15"), ("N3", "B6371"), ("UA15",)]
    assert source.born_times_ms == [1_357_034_400_000, 0, 3_600_000]
    assert dict(source.rows_by_key) == {"N14228": [0], "UA15": [0, 2], "N3": [1], "B6371": [1]}


def test_delays_add_up(source: Source) -> None:
    """Cancelled flights count as flights, not as departures, and a delay of 15 minutes or more is late."""
    assert source.delays_by_carrier() == {
        "B6": CarrierDelay("B6", 1, 1, -2, 0),
        "UA": CarrierDelay("UA", 2, 1, 15, 1),
    }
    assert source.delays_by_carrier([2])["UA"].mean_delay_minutes == 0.0


@pytest.mark.slow
def test_the_file_is_the_one_that_is_known() -> None:
    """The package's table has the published counts, and no two rows are the same."""
    source = read_source()
    assert len(source) == FLIGHT_COUNT == len(source.row_by_body)
    assert (source.busiest_aircraft(), len(source.rows_by_key["N725MQ"])) == ("N725MQ", 575)
    assert source.tail_numbers.count(None) == 2512
    delays = source.delays_by_carrier()
    assert {carrier: delays[carrier].flight_count for carrier in ("UA", "HA", "OO")} == {
        "UA": 58_665,
        "HA": 342,
        "OO": 32,
    }
    assert sum(delay.departed_count for delay in delays.values()) == 328_521
    assert round(delays["F9"].mean_delay_minutes, 1) == 20.2


@pytest.mark.parametrize(
    ("answer", "expected", "difference"),
    [
        (1, 1, ""),
        ([1, 2], [1, 2], ""),
        (336_776, 336_775, "is 336,776, expected 336,775"),
        ([1, 3], [1, 2], "2 items, expected 2; item 1 is 3, expected 2"),
        ([1], [1, 2], "1 items, expected 2; item 1 is nothing, expected 2"),
        ([1, 2], [], "2 items, expected 0; item 0 is 1, expected nothing"),
        (True, 1.5, "is True, expected 1.5"),
    ],
)
def test_differences_are_named(answer: object, expected: object, difference: str) -> None:
    """A difference has the actual and the expected value, and the place."""
    assert difference_of(answer, expected) == difference


@pytest.mark.parametrize(("answers", "exit_code"), [([1, 2], 1), ([1, 1], 0), ([], 1)])
def test_one_difference_fails_the_run(answers: list[int], exit_code: int) -> None:
    """A difference, or no comparison at all, fails the run, and the report names the question."""
    report = Report()
    report.console = Console(file=io.StringIO(), width=100)
    seen: list[Comparison] = []
    comparisons = Comparisons(seen.append)
    for answer in answers:
        comparisons.equal("how many?", answer, 1)
    assert report.verdict(comparisons) == exit_code
    assert len(seen) == comparisons.count == len(answers)
    printed = report.console.file.getvalue()  # type: ignore[attr-defined]
    assert ("DIFFERENT  how many?: is 2, expected 1" in printed) == (2 in answers)
