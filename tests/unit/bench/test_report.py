# SPDX-License-Identifier: Apache-2.0
"""The report's cells and tables."""

import pytest

from bench import report
from bench.report import Subject
from bench.results import Results, Run, Spread
from bench.scenarios import SCENARIOS

NAMES = {"reput": "Reput", "kafka": "Apache Kafka", "redis": "Redis"}


def subject(*names: str, **more: dict[str, str]) -> Subject:
    """A report about some scenarios."""
    return Subject(
        scenarios=[scenario for scenario in SCENARIOS if scenario.name in names],
        peer_names=NAMES,
        machine={"cores": 2},
        seconds=1.0,
        round_count=3,
        round_done_count=2,
        **more,
    )


RESULTS = Results(
    [
        Run("append-1KiB", "reput", 1, {"messages_per_s": 600_000.0}),
        Run("append-1KiB", "reput", 2, {"messages_per_s": 500_000.0}),
        Run("append-1KiB", "kafka", 1, {"messages_per_s": 300_000.0}),
        Run("append-1KiB", "kafka", 2, {}, "LoadFailed: the broker\nwent away"),
        Run("latency-16", "reput", 1, {"p50_ms": 2.0, "p99_ms": 4.0, "messages_per_s": 8_000.0}),
        Run("latency-16", "kafka", 1, {"p50_ms": 1.0, "p99_ms": 8.0, "messages_per_s": 16_000.0}),
    ]
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2_213_400.0, "2.21 M"),
        (554_321.0, "554 k"),
        (9_999.4, "9,999"),
        (123.4, "123"),
        (99.94, "99.9"),
        (0.01234, "0.0123"),
        (0.0, "0"),
    ],
)
def test_human_numbers(value: float, text: str) -> None:
    """Three or four digits that matter, with k and M from ten thousand and a million on."""
    assert report.human(value) == text


@pytest.mark.parametrize(
    ("spread", "text"),
    [(Spread(2.0, 2.0, 2.0, 1), "2"), (Spread(2.0, 1.0, 30_000.0, 3), "2 (1–30 k)")],
)
def test_spread_text(spread: Spread, text: str) -> None:
    """A single value needs no range."""
    assert report.spread_text(spread) == text


@pytest.mark.parametrize(
    ("scenario", "peer", "figure", "text"),
    [
        ("append-1KiB", "reput", "messages_per_s", "550 k (500 k–600 k)"),
        ("append-1KiB", "kafka", "messages_per_s", "300 k · 2.00 × · 1 failed"),
        ("append-1KiB", "redis", "messages_per_s", "–"),
        ("latency-16", "kafka", "p50_ms", "1 · 0.50 ×"),
        ("latency-16", "kafka", "p99_ms", "8 · 2.00 ×"),
        ("latency-16", "kafka", "messages_per_s", "16 k · 0.50 ×"),
    ],
)
def test_cell(scenario: str, peer: str, figure: str, text: str) -> None:
    """Another system's cell has the factor by which Reput is better: more per second, or fewer milliseconds."""
    assert report.cell(RESULTS, scenario, peer, figure, "reput") == text


def test_cell_of_a_system_that_always_fails() -> None:
    """A cell without a measured value shows no number."""
    failed = Results([Run("append-1KiB", "kafka", 1, {}, "LoadFailed: no")])
    assert report.cell(failed, "append-1KiB", "kafka", "messages_per_s", "reput") == "**failed**"


def test_markdown_has_a_row_for_each_scenario_and_a_column_for_each_system() -> None:
    """The append table has a row for each scenario, the latency table a row for each percentile."""
    lines = report.markdown(subject("append-1KiB", "latency-16"), RESULTS).splitlines()
    assert "| scenario | Reput | Apache Kafka | Redis |" in lines
    assert "| append-1KiB | 550 k (500 k–600 k) | 300 k · 2.00 × · 1 failed | – |" in lines
    assert "| latency-16 p99, ms | 4 | 8 · 2.00 × | – |" in lines
    assert "| append-1KiB: Reput ÷ Kafka | ≥ 1.5 | 2 | met |" in lines
    assert any(line.startswith("2 of 3 rounds") for line in lines)


def test_markdown_names_what_is_missing_broken_skipped_and_failed() -> None:
    """Each missing system, broken system, skipped scenario and failed run has a line of its own."""
    text = report.markdown(
        subject(
            "append-1KiB",
            "start-50GiB",
            missing={"nats": "install Go 1.23"},
            broken={"redis": "RuntimeError: no\nnetwork"},
            skipped={"start-50GiB": "needs 70 GiB of free disk, 12 are there"},
        ),
        RESULTS,
    )
    for line in (
        "- nats is not here: install Go 1.23",
        "- redis could not be prepared: RuntimeError: no network",
        "- start-50GiB was skipped: needs 70 GiB of free disk, 12 are there",
        "- append-1KiB on kafka failed in round 2: LoadFailed: the broker went away",
        "| start-50GiB |  | skipped: needs 70 GiB of free disk, 12 are there |",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize(
    ("figure", "label", "is_lower_better"),
    [
        ("p999_ms", "p99.9, ms", True),
        ("index_lag_s", "index lag, s", True),
        ("messages_per_s", "messages/s", False),
        ("copy_with_crc_gigabytes_per_s", "copy with crc GB/s", False),
        ("share_of_bare", "share of bare", False),
    ],
)
def test_figure_labels(figure: str, label: str, is_lower_better: bool) -> None:
    """The name of a figure tells its unit, and whether higher or lower values are better."""
    assert report.figure_label(figure) == label
    assert report.is_lower_better(figure) is is_lower_better
