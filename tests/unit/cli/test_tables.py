# SPDX-License-Identifier: Apache-2.0
"""Tables on terminals: at any width no number and no time is broken, and nothing is lost."""

import json
from datetime import UTC, datetime

import pytest

from cli.output.moments import short_text
from cli.output.tables import cell, print_fields, print_rows, table_lines, title_of
from cli.output.wrapping import text_width

SEGMENTS = [
    {
        "base_physical_offset": number << 30,
        "size_bytes": 1 << 30,
        "wrote_bytes": 695_526_429,
        "first_store_time": "2026-11-23T01:24:36.803Z",
        "last_store_time": "2026-11-23T01:41:58.575Z",
        "is_active": number == 9,
        "is_indexed": True,
        "reader_count": 1,
    }
    for number in range(10)
]
COLUMNS = tuple(SEGMENTS[0])
PROSE = [{"base_physical_offset": 1 << 40, "reason": "NOT_EXPIRED", "explanation": "its last record is young " * 6}]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 140])
def test_nothing_is_broken(width: int) -> None:
    """Each offset, size and time is whole within a line, and lines fit if the longest value fits."""
    lines = list(table_lines(SEGMENTS, COLUMNS, width))
    text = "\n".join(lines)
    for row in SEGMENTS:
        assert str(row["base_physical_offset"]) in text
    assert text.count("663 MiB") == len(SEGMENTS)
    assert text.count(short_text(1_795_397_076_803)) == len(SEGMENTS)
    if width >= 60:
        assert max(map(len, lines)) <= width


def test_at_80_columns_it_is_still_a_table() -> None:
    """Titles take several lines, numbers are right-aligned, and the least important columns are left out."""
    lines = list(table_lines(SEGMENTS, COLUMNS, 80, spare=("reader_count", "size_bytes")))
    rows = lines[-len(SEGMENTS) :]
    assert rows[0].startswith(f"{0:>10}  663 MiB  {short_text(1_795_397_076_803)}  ")
    assert rows[9].split()[0] == str(9 << 30)
    assert (len(lines), lines[2].split()[-2:]) == (len(SEGMENTS) + 3, ["active", "indexed"])
    assert "reader" not in "".join(lines)


def test_prose_stands_below_its_row() -> None:
    """A sentence is broken between words only."""
    columns = ("base_physical_offset", "reason", "explanation")
    wide = list(table_lines(PROSE, columns, 300, prose="explanation"))
    assert len(wide) == 2
    narrow = list(table_lines(PROSE, columns, 60, prose="explanation"))
    assert narrow[1].split() == [str(1 << 40), "NOT_EXPIRED"]
    assert " ".join(" ".join(narrow[2:]).split()) == str(PROSE[0]["explanation"]).strip()
    assert max(map(len, narrow)) <= 60
    named = [{**row, "topic": LONG} for row in PROSE]
    steps = list(table_lines(named, ("topic", *columns), 70, prose="explanation"))
    assert str(PROSE[0]["explanation"]).strip() in " ".join(" ".join(steps).split())
    assert max(map(len, steps)) <= 70


def test_records_line_by_line() -> None:
    """A row that is too wide for any table has a line for each value."""
    rows = [{"path": "/" + "x" * 15, "used_percent": 37}, {"path": "/y", "used_percent": 5}]
    assert list(table_lines(rows, ("path", "used_percent"), 20)) == [
        f"path  /{'x' * 15}",
        "used  37 %",
        "",
        "path  /y",
        "used  5 %",
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("freed_bytes", 1 << 30, "1.0 GiB"),
        ("disk_used_percent", 37, "37 %"),
        ("lag_s", 0.25, "250 ms"),
        ("clock_ahead_ms_max", 3_600_000, "1 h"),
        ("records_per_s", 1_000_000, "1,000,000"),
        ("in_per_s", 0.25, "0.2"),
        ("lag", 12_345, "12,345"),
        ("record_count", 60_046, "60,046"),
        ("physical_offset", 14_296_552, "14296552"),
        ("is_active", False, "no"),
        ("delete_hours", [4, 16], "4, 16"),
        ("error", None, ""),
        ("name", "\x1b[2J", "\\x1b[2J"),
    ],
)
def test_values_by_their_names(name: str, value: object, text: str) -> None:
    """The unit at the end of a name decides the form of its value."""
    assert cell(name, value) == text


def test_times_are_short() -> None:
    """A time is short, from a UTC text, from milliseconds and from a datetime of the client."""
    for value in ("2026-11-23T01:24:36.803Z", datetime(2026, 11, 23, 1, 24, 36, tzinfo=UTC)):
        assert cell("store_time", value) == short_text(1_795_397_076_000)
    assert cell("store_time_ms", 1_795_397_076_803) == short_text(1_795_397_076_803)


def test_titles_have_no_units_that_values_say() -> None:
    """A title has no unit, because the value has it."""
    names = ("size_bytes", "lag_s", "clock_ahead_ms_max", "read_queue_count", "in_per_s")
    assert [title_of(name) for name in names] == ["size", "lag", "clock ahead max", "read queue count", "in/s"]


def test_wide_characters() -> None:
    """A wide character takes two columns of a terminal, so that columns behind it stay aligned."""
    rows = [{"name": "\u65e5\u672c", "n": 1}, {"name": "abcd", "n": 2}]
    lines = list(table_lines(rows, ("name", "n"), 80))
    assert {text_width(line) for line in lines} == {7}


def test_an_empty_table_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A user is told that an empty table has no rows, because titles alone look like a lost answer.

    A script gets the titles.
    """
    print_rows([], ("name", "n"), as_json=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_rows([], ("name", "n"), as_json=False)
    assert capsys.readouterr() == ("name  n\n", "there is none\n")
    print_rows([], ("name", "n"), as_json=True)
    assert capsys.readouterr() == ("", "")


def test_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the exact values, independent of the table for users."""
    print_rows(SEGMENTS, COLUMNS, as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == SEGMENTS


def test_fields_with_lists_of_things(capsys: pytest.CaptureFixture[str]) -> None:
    """A list of objects is a table below the fields, and not Python's dictionaries."""
    print_fields({"is_full": False, "disks": [{"service": "commitlog", "free_bytes": 1024}]}, as_json=False)
    assert capsys.readouterr().out.splitlines() == ["is full  no", "disks", "service       free", "commitlog  1.0 KiB"]


LONG = "prod-eu-central-1-checkout-payment-events-v2-" + "x" * 60
GROUPS = [
    {"group": group, "topic": topic, "queue_id": 0, "queue_offset": 1 << 40, "lag": 25_004, "is_shared": True}
    for group in ("billing", "billing-of-the-finance-department-in-the-north")
    for topic in ("orders", LONG, "\u8ba2\u5355" * 30)
]
GROUP_COLUMNS = tuple(GROUPS[0])


@pytest.mark.parametrize("width", [40, 80, 140])
def test_a_long_name_takes_no_table_away(width: int) -> None:
    """A long name has a line of its own in its row.

    Nothing is lost, cut or wider than the terminal, and numbers stay whole.
    """
    lines = list(table_lines(GROUPS, GROUP_COLUMNS, width, spare=("is_shared",)))
    assert max(map(text_width, lines)) <= width
    text = "\n".join(lines)
    assert text.count(str(1 << 40)) == len(GROUPS)
    unbroken = "".join(text.split())
    for row in GROUPS:
        assert str(row["group"]) in (text if width > 60 else unbroken)
        assert str(row["topic"]) in (text if width > len(LONG) else unbroken)
    if width > 60:
        titles, first = next((one, lines[at + 1]) for at, one in enumerate(lines) if one.startswith("group "))
        assert titles.index("topic") == first.index("orders")
        assert len({line.index(str(1 << 40)) for line in lines if str(1 << 40) in line}) == 1


def test_an_id_keeps_its_column() -> None:
    """Ids have equal lengths and keep their column, so the long names beside them are moved."""
    rows = [{"id": f"{number:032X}", "group": "shop" * 9, "topic": LONG, "begun_time": None} for number in range(2)]
    lines = list(table_lines(rows, tuple(rows[0]), 80))
    assert [line.split()[0] for line in lines if line[:4] == "0000"] == [row["id"] for row in rows]
    assert lines[0].index("group") == 34
    assert f"{rows[0]['id']}  {rows[0]['group']}" in lines


def test_long_values_of_one_thing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A long value continues beside its title."""
    monkeypatch.setattr("cli.output.tables.output_width", lambda: 40)
    print_fields({"backoffs_s": [10, 30, 60, 120, 180, 240], "topic": LONG}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["backoffs  10 s, 30 s, 1 min, 2 min,", "          3 min, 4 min"]
    assert max(map(len, lines)) <= 40
    assert "".join(line[10:] for line in lines[2:]) == LONG
