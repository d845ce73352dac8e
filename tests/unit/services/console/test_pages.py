# SPDX-License-Identifier: Apache-2.0
"""The models of the console's pages, made from answers, and their HTML with hostile text in each field."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from reput.common.v1 import message_pb2
from reput_client import ConsumerOffset, Message

from services.console.ask.tail import cursor_of, cursor_text
from services.console.pages.body import SHOWN_CHARACTERS_MAX, body_of, hex_dump
from services.console.pages.chart import HEIGHT, bars
from services.console.pages.find import Search, page_of, wanted, zone_of
from services.console.pages.groups import GroupFacts, GroupQueue, group_page, groups_page, kept_queue, lag_of
from services.console.pages.message import page_of as message_page
from services.console.pages.message import states_of
from services.console.pages.page import Gap, Page, merged
from services.console.pages.rows import preview_of, row_of
from services.console.pages.topics import arrivals_of
from services.console.web.app import local_target
from services.console.web.gate import host_of, is_same_origin
from services.console.web.rendering import Renderer, visible
from tests.console.filling import HOSTILE, SCRIPT

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
ID = "7F00000100002A9F0000000000000000"


def message(body: bytes = b"hello", **fields: Any) -> Message:
    raw = message_pb2.StoredMessage(topic="orders", queue_id=1, queue_offset=5, body=body, offset_message_id=ID)
    for name, value in fields.items():
        setattr(raw, name, value)
    return Message(raw)


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        ("", set()),
        ("order-17", {"key", "name"}),
        (ID.lower(), {"key", "name", "offset_id"}),
        ("-1h", {"key", "name", "moment_ms"}),
        ("2 hours ago", {"moment_ms"}),
        ("yesterday 14:05", {"moment_ms"}),
        ("2026-11-26T12:03", {"key", "moment_ms"}),
        ("1795397076803", {"key", "name", "moment_ms"}),
        ("12345", {"key", "name"}),
        ("a b", set()),
        ("9999-12-31T23:59:59Z", {"key"}),
        ("0001-01-01", {"key", "name"}),
        ("9" * 400, {"key", "name"}),
        ("<b>", {"key"}),
    ],
)
def test_meanings_of_a_text(text: str, meanings: set[str]) -> None:
    """A text may be a key, an id, a name and a time, and all of them at once."""
    found = wanted(text, "UTC", NOW)
    assert {
        name for name in ("key", "name", "offset_id", "moment_ms") if getattr(found, name) not in ("", None)
    } == meanings


def test_times_are_in_the_zone_of_the_reader() -> None:
    """A time without a zone is that of the reader's zone; an unknown zone is UTC."""
    here = wanted("2026-11-26T12:03", "Europe/Berlin", NOW).moment_ms
    there = wanted("2026-11-26T11:03Z", "UTC", NOW).moment_ms
    assert here == there
    for name in ("", "../../etc/passwd", "No/Such", "/etc/localtime", "x" * 100, "Europe"):
        assert zone_of(name) is UTC, name


def test_not_found_and_could_not_look_are_two_answers() -> None:
    """Without results a gap makes the difference; with results the page is found, and not complete."""
    meant, gap = wanted("order-17", "", NOW), Gap("the key", "the Indexer does not answer")
    row = row_of(message(), hides_bodies=False)
    assert [
        (page.outcome, page.status)
        for page in (
            page_of(meant, "", Search(), ()),
            page_of(meant, "", Search(), (gap,)),
            page_of(meant, "", Search(messages=[row]), (gap,)),
        )
    ] == [("not_found", 200), ("could_not_look", 503), ("found", 200)]
    assert [group_page("g", None, gaps).status for gaps in ((), (gap,))] == [404, 503]


def test_gaps_of_the_same_reason_are_one() -> None:
    """A service that is away is told once, and long lists are cut."""
    gaps = [Gap(f"topic {at}", "away") for at in range(9)] + [Gap("groups", "full"), Gap("groups", "full")]
    assert merged(gaps) == (Gap("topic 0, topic 1 and 7 more", "away"), Gap("groups", "full"))


def test_forms_of_bodies() -> None:
    """Numbers of JSON stay as they are written; what is no text is hexadecimal; long texts are cut."""
    numbers = body_of(message(b'{"a": 1.10, "b": 12345678901234567890123, "c": 1e400, "d": [NaN]}'), "", hides=False)
    assert numbers.form == "json"
    for written in ("1.10", "12345678901234567890123", "1e400", "NaN"):
        assert re.search(rf"\s{re.escape(written)}\b", numbers.shown), written
    assert body_of(message(b'{"a": 1'), "json", hides=False).form == "text"
    assert body_of(message(b"[" * 100_000), "json", hides=False).form == "text"
    assert body_of(message('{"\ue000": 1}'.encode()), "", hides=False).form == "text"
    assert body_of(message(b"\xff\x00"), "text", hides=False).shown == hex_dump(b"\xff\x00")
    assert body_of(message(b"x" * 100_000), "", hides=False).is_cut
    assert len(body_of(message(b"x" * 100_000), "", hides=False).shown) == SHOWN_CHARACTERS_MAX
    wrong = body_of(message(b"no zlib", sys_flag=1), "", hides=False)
    assert (wrong.shown, wrong.is_compressed) == ("no zlib", True)
    assert "no whole zlib body" in wrong.error
    hidden = body_of(message(b"secret"), "", hides=True)
    assert (hidden.is_hidden, hidden.size_bytes, "secret" in msgspec.json.encode(hidden).decode()) == (True, 6, False)


def test_previews() -> None:
    """A preview is a line; a character at its cut is left out, and bytes that are no text have none."""
    assert preview_of(b"a\n b\tc") == "a b c"
    assert preview_of("ä".encode() * 1_000).strip("ä") == ""
    assert preview_of(b"x" + "ä".encode() * 1_000).strip("ä") == "x"
    assert preview_of(b"\xff\xfe") == ""


def test_states_at_groups() -> None:
    """The state follows from the positions; out of order nothing is claimed."""
    shared = GroupQueue("orders", 1, 5, 20, 15, next_queue_offset=9)
    kept = kept_queue(ConsumerOffset("orders", 1, 5, 15))
    assert (kept.end_queue_offset, kept.lag_bytes) == (20, None)
    share: Any = object()
    groups = [GroupFacts("s", (shared,), share), GroupFacts("k", (kept,)), GroupFacts("o", ())]
    found = {at: [one.state for one in states_of("orders", 1, at, groups)] for at in (4, 5, 8, 9)}
    assert found == {
        4: ["settled", "read"],
        5: ["open", "not_read"],
        8: ["open", "not_read"],
        9: ["not_delivered", "not_read"],
    }


def test_lag_of_queues() -> None:
    """Bytes are unknown if one queue's are; seconds are those of the oldest."""
    one, other = GroupQueue("t", 0, 0, 3, 3, lag_bytes=7, lag_s=2.0), GroupQueue("t", 1, 0, 4, 4, lag_bytes=None)
    assert msgspec.structs.astuple(lag_of([one, other])) == (7, None, 2.0)
    assert msgspec.structs.astuple(lag_of([])) == (0, 0, None)
    page = groups_page([GroupFacts("a", (one,)), GroupFacts("b", (other,)), GroupFacts("c", ())], "", ())
    assert [row.name for row in page.rows] == ["a", "b", "c"]


def test_arrivals() -> None:
    """Arrivals are differences of queue offsets over all queues; the largest fills the chart."""
    arrivals = arrivals_of(0, 1_000, [[0, 4, 4, 10], [0, 0, 0, 2]])
    assert arrivals.counts == (4, 0, 8)
    assert [bar.height for bar in arrivals.bars] == [HEIGHT / 2, 0, HEIGHT]
    assert bars(()) == ()
    assert [bar.height for bar in bars((0, 0))] == [0, 0]


def test_cursors() -> None:
    """A cursor names queues and offsets; everything else is refused."""
    assert cursor_of(cursor_text({1: 5, 0: 3})) == {0: 3, 1: 5}
    for wrong in ("", "0", "0.", "0.1,", "a.b", "0.1;1.2", "-1.0", "0." + "9" * 19, ",".join(["0.0"] * 33)):
        with pytest.raises(ValueError, match="cursor"):
            cursor_of(wrong)


def test_hostile_text_in_each_field() -> None:
    """No field of a message becomes markup, and what can't be seen is shown as an escape."""
    raw = message_pb2.StoredMessage(
        topic=HOSTILE, body=HOSTILE.encode(), offset_message_id=HOSTILE, born_time_ms=2**62, store_time_ms=-(2**62),
        properties={HOSTILE: HOSTILE, "TAGS": HOSTILE, "KEYS": HOSTILE, "UNIQ_KEY": HOSTILE},
    )  # fmt: skip
    hostile, gaps = Message(raw), (Gap(HOSTILE, HOSTILE),)
    row = row_of(hostile, hides_bodies=False)
    queue = GroupQueue(HOSTILE, 0, 0, 1, 1, reasons=(HOSTILE,))
    facts = GroupFacts(HOSTILE, (queue,))
    meant = wanted(HOSTILE, HOSTILE, NOW)
    pages: list[Page] = [
        page_of(meant, HOSTILE, Search([HOSTILE], [HOSTILE], [row], [row]), gaps),
        message_page(HOSTILE, hostile, [facts], gaps, form="text", hides_bodies=False),
        message_page(HOSTILE, None, [], gaps, form="", hides_bodies=False),
        groups_page([facts], "", gaps),
        group_page(HOSTILE, facts, gaps),
        group_page(HOSTILE, None, ()),
    ]
    for page in pages:
        html = Renderer().page(page, path="/", twin="/find.json", can_log_out=True)
        assert SCRIPT not in html
        assert not re.search(r"<(img|script(?! src=\"/static/))", html)
        shown = re.sub(r'(?:value|data-copy)="[^"]*"', "", html)
        assert not set(shown) & {"\u202e", "\x07", "\x1b", "\x7f"}
    assert visible("a\u202e\x1b\n") == "a\\u202e\\x1b\n"


def test_hosts_and_origins() -> None:
    """The name of a host is read strictly; a form of another origin is not the console's own."""
    known = {
        "localhost:7300": "localhost",
        "[::1]:7300": "::1",
        "LOCALHOST": "localhost",
        "a@b": "",
        "a/b": "",
        "[": "",
    }
    assert {header: host_of(header) for header in known} == known
    assert is_same_origin({"host": "h:1", "origin": "http://h:1"}, "http")
    for wrong in (
        {"origin": "http://h:2"},
        {"origin": "null"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://h:1"},
    ):
        assert not is_same_origin({"host": "h:1", **wrong}, "http"), wrong
    for target in ("//evil", "/\\evil", "https://evil", "javascript:1", "", "/a\nb"):
        assert local_target(target) == "/", target
    assert local_target("/topics?name=a") == "/topics?name=a"
