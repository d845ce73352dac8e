# SPDX-License-Identifier: Apache-2.0
"""The models of the console's pages, made from answers, and their HTML with hostile text in each field."""

import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace
from reput.common.v1 import message_pb2
from reput_client import ConsumerOffset, DelayedMessage, DelayLevel, Message, OpenTransaction, ShareGroup, SharePolicy

from libs.filters.property_filter import parse_where
from services.console.ask.find import MESSAGES_SHOWN_MAX
from services.console.ask.tail import cursor_of, cursor_text
from services.console.pages.body import JSON_BYTES_MAX, SHOWN_CHARACTERS_MAX, body_of, hex_dump
from services.console.pages.chart import HEIGHT, bars
from services.console.pages.find import More, Search, first_in_time, page_of, wanted, zone_of
from services.console.pages.groups import GroupFacts, GroupQueue, Reason, group_page, groups_page, kept_queue, lag_of
from services.console.pages.letters import Death, causes_of, span_of
from services.console.pages.mask import SHOWN, Mask, mask_of
from services.console.pages.message import page_of as message_page
from services.console.pages.message import states_of
from services.console.pages.page import Gap, Page, merged
from services.console.pages.rows import MessageRow, preview_of, row_of
from services.console.pages.states import GroupState, State
from services.console.pages.topics import arrivals_of
from services.console.pages.waiting import DelayedQuestion, delayed_page, transactions_page, waiting_row
from services.console.web.app import local_target
from services.console.web.gate import host_of, is_same_origin
from services.console.web.rendering import Renderer, visible
from tests.console.filling import HOSTILE, SCRIPT

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
PLAIN = Mask()
ID = "7F00000100002A9F0000000000000000"


def message(body: bytes = b"hello", **fields: Any) -> Message:
    raw = message_pb2.StoredMessage(topic="orders", queue_id=1, queue_offset=5, body=body, offset_message_id=ID)
    for name, value in fields.items():
        raw.properties.update(value) if name == "properties" else setattr(raw, name, value)
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
    row = row_of(message(), PLAIN)
    assert [
        (page.outcome, page.status)
        for page in (
            page_of(meant, "", Search(), ()),
            page_of(meant, "", Search(), (gap,)),
            page_of(meant, "", Search(messages=[row]), (gap,)),
        )
    ] == [("not_found", 200), ("could_not_look", 503), ("found", 200)]
    assert [group_page("g", None, gaps, PLAIN).status for gaps in ((), (gap,))] == [404, 503]


def test_gaps_of_the_same_reason_are_one() -> None:
    """A service that is away is told once, and long lists are cut."""
    gaps = [Gap(f"topic {at}", "away") for at in range(9)] + [Gap("groups", "full"), Gap("groups", "full")]
    assert merged(gaps) == (Gap("topic 0, topic 1 and 7 more", "away"), Gap("groups", "full"))


def test_forms_of_bodies() -> None:
    """Numbers of JSON stay as they are written; other bytes are hexadecimal; long texts are cut."""
    numbers = body_of(message(b'{"a": 1.10, "b": 12345678901234567890123, "c": 1e400, "d": [NaN]}'), "", PLAIN)
    assert numbers.form == "json"
    for written in ("1.10", "12345678901234567890123", "1e400", "NaN"):
        assert re.search(rf"\s{re.escape(written)}\b", numbers.shown), written
    assert body_of(message(b'{"a": 1'), "json", PLAIN).form == "text"
    assert body_of(message(b"[" * 100_000), "json", PLAIN).form == "text"
    assert body_of(message('{"\ue000": 1}'.encode()), "", PLAIN).form == "text"
    assert body_of(message(b"\xff\x00"), "text", PLAIN).shown == hex_dump(b"\xff\x00")
    assert body_of(message(b"x" * 100_000), "", PLAIN).is_cut
    assert len(body_of(message(b"x" * 100_000), "", PLAIN).shown) == SHOWN_CHARACTERS_MAX
    wrong = body_of(message(b"no zlib", sys_flag=1), "", PLAIN)
    assert (wrong.shown, wrong.is_compressed) == ("no zlib", True)
    assert "no whole zlib body" in wrong.error
    hidden = body_of(message(b"secret"), "", Mask(hides_bodies=True))
    assert (hidden.is_hidden, hidden.size_bytes, "secret" in msgspec.json.encode(hidden).decode()) == (True, 6, False)


SECRET = "4929-1234"


@pytest.mark.parametrize(
    "body",
    [
        f'{{"card": "{SECRET}", "total": 1.10}}',
        f'[{{"Card": {{"number": "{SECRET}"}}, "total": 1.10}}]',
        f'{{"\\u0063ard": ["{SECRET}"], "total": 1.10}}',
        f'{{"total": 1.10, "inner": " {{\\"card\\": \\"{SECRET}\\"}}"}}',
        f'{{"a": {{"b": [{{"CARD": "{SECRET}"}}]}}, "total": 1.10}}',
    ],
)
def test_masked_fields_of_json(body: str) -> None:
    """The values of masked fields are in no form of a body and in no preview, wherever they stand."""
    mask = mask_of(" card,, KEYS", hides_bodies=False)
    for form in ("", "json", "text", "hex"):
        shown = body_of(message(body.encode()), form, mask)
        assert (shown.form, shown.forms, SHOWN in shown.shown) == ("json", ("json",), True)
        assert (SECRET in shown.shown, re.search(r"\s1\.10\b", shown.shown) is not None) == (False, True)
    row = row_of(message(body.encode()), mask)
    assert (SHOWN in row.preview, SECRET in row.preview) == (True, False)


def test_bodies_that_a_mask_can_not_read_are_hidden() -> None:
    """A body that is no JSON, and JSON that is too large for a layout, are hidden; properties and keys are masked."""
    mask = mask_of("card,KEYS,TAGS", hides_bodies=False)
    deep = "[" * 100_000
    long = f'{{"card": "{SECRET}", "pad": "{"x" * JSON_BYTES_MAX}"}}'
    for body in (f"card={SECRET}", f'{{"card": "{SECRET}"', f'"{SECRET}"', deep + SECRET, long, f"\x00{SECRET}"):
        page = message_page(ID, message(body.encode()), (), (), indexer_target="h:1", form="text", mask=mask)
        assert page.body is not None
        assert (page.body.is_hidden, page.body.shown) == (True, "")
        assert SECRET not in msgspec.json.encode(page).decode()
    properties = {"KEYS": SECRET, "TAGS": SECRET, "Card": SECRET, "region": "eu"}
    page = message_page(ID, message(b"{}", properties=properties), (), (), indexer_target="h:1", form="", mask=mask)
    assert SECRET not in msgspec.json.encode(page).decode()
    assert {shown.name: shown.value for shown in page.properties}["region"] == "eu"


def test_masked_values_are_no_conditions() -> None:
    """Conditions, tags and keys that would tell a masked value are refused, and conditions that can't be read."""
    mask = mask_of("card,KEYS,TAGS", hides_bodies=False)
    for where in (
        "card = '4'",
        "region = 'eu' OR NOT (Card IS NULL)",
        "a = card",
        "KEYS CONTAINS '4'",
        "TAGS = 'a'",
        "(",
    ):
        assert mask.refusal(where=where), where
        assert not PLAIN.refusal(where=where)
    assert mask.refusal(tags="a")
    assert mask.refusal(key="order-1")
    assert not mask.refusal(where="region = 'card'", tags="*", key="0" * 32)
    share: Any = SimpleNamespace(
        policy=SimpleNamespace(
            attempts_max=1, backoffs_s=(), invisible_s=1.0, is_ordered=False, from_end=False, is_paused=False
        ),
        filters=[SimpleNamespace(topic="t", tags="a", where="card = '4'")],
        dead_letter_count=0,
    )
    (shown,) = group_page("g", GroupFacts("g", (), share), (), mask).filters
    assert (shown.tags, shown.where) == (SHOWN, SHOWN)


def test_previews() -> None:
    """A preview is a line; a character at its cut is left out, and bytes that are no text have none."""
    assert preview_of(b"a\n b\tc", PLAIN) == "a b c"
    assert preview_of("ä".encode() * 1_000, PLAIN).strip("ä") == ""
    assert preview_of(b"x" + "ä".encode() * 1_000, PLAIN).strip("ä") == "x"
    assert preview_of(b"\xff\xfe", PLAIN) == ""


def test_states_at_groups() -> None:
    """The state follows from the positions; out of order nothing is claimed."""
    shared = GroupQueue("orders", 1, 5, 20, 15, next_queue_offset=9)
    kept = kept_queue(ConsumerOffset("orders", 1, 5, 15))
    assert (kept.end_queue_offset, kept.lag_bytes) == (20, None)
    share = ShareGroup("s", SharePolicy(), (), 0)
    groups = [GroupFacts("s", (shared,), share), GroupFacts("k", (kept,)), GroupFacts("o", ())]
    found = {at: [group.state for group in states_of("orders", 1, at, groups)] for at in (4, 5, 8, 9)}
    assert found == {
        4: ["settled", "read"],
        5: ["open", "not_read"],
        8: ["open", "not_read"],
        9: ["not_delivered", "not_read"],
    }


def test_lag_of_queues() -> None:
    """Bytes are unknown if a queue's are unknown; seconds are the age of the oldest message."""
    known, unknown = GroupQueue("t", 0, 0, 3, 3, lag_bytes=7, lag_s=2.0), GroupQueue("t", 1, 0, 4, 4, lag_bytes=None)
    assert msgspec.structs.astuple(lag_of([known, unknown])) == (7, None, 2.0)
    assert msgspec.structs.astuple(lag_of([])) == (0, 0, None)
    page = groups_page([GroupFacts("a", (known,)), GroupFacts("b", (unknown,)), GroupFacts("c", ())], "", ())
    assert [row.name for row in page.rows] == ["b", "a", "c"]


def row_at(store_time_ms: int, queue_id: int = 0, queue_offset: int = 0) -> MessageRow:
    place = store_time_ms * 1_000 + queue_id
    return MessageRow("id", "t", queue_id, queue_offset, place, store_time_ms, "", (), 0, "", 0, "", "")


def test_the_first_messages_in_time_are_those_of_all_queues() -> None:
    """Messages behind the last message of a queue with more are left out: its next messages may come before them."""
    whole = ([row_at(at, 0, at) for at in (1, 5, 9)], False)
    begin = ([row_at(at, 1, at) for at in (2, 6)], True)
    rows, is_cut = first_in_time([whole, begin], 10)
    assert ([row.store_time_ms for row in rows], is_cut) == ([1, 2, 5, 6], True)
    rows, is_cut = first_in_time([whole], 2)
    assert ([row.store_time_ms for row in rows], is_cut) == ([1, 5], True)
    assert first_in_time([whole], 3) == (whole[0], False)


def test_messages_of_a_millisecond_are_as_they_stand_in_the_log() -> None:
    """The last message of a queue with more is a place in the log: later messages of its millisecond are left out."""
    begin = ([replace(row_at(7, 1), physical_offset=place) for place in (10, 40)], True)
    whole = ([replace(row_at(7, 0), physical_offset=place) for place in (20, 50)], False)
    rows, is_cut = first_in_time([whole, begin], 10)
    assert ([row.physical_offset for row in rows], is_cut) == ([10, 20, 40], True)


def test_a_search_by_time_leads_to_the_next_messages() -> None:
    """The verdict says that there are more, and the next search goes on behind the last message."""
    meant = wanted("2026-11-26T12:03:00Z", "", datetime.now(UTC))
    assert meant.moment_ms is not None
    for ahead_ms in (0, 20):
        last = row_at(meant.moment_ms + ahead_ms)
        page = page_of(meant, "t", Search(near=[last], is_near_cut=True), ())
        assert page.verdict == "The first 1 message from this time on; there are more."
        assert wanted(page.next_moment, "", datetime.now(UTC)).moment_ms == last.store_time_ms
        assert page.next_behind == last.physical_offset


def test_a_group_without_members_says_so() -> None:
    """The reason of a lag is that no member receives, unless the group is paused or its kind is not known."""
    behind = GroupQueue("t", 0, 0, 3, 3, lag_bytes=7, lag_s=2.0)
    share = ShareGroup("g", SharePolicy(), (), 0)
    (row,) = groups_page([GroupFacts("g", (behind,), share)], "", ()).rows
    assert row.reasons == (Reason("no member receives"),)
    (row,) = groups_page([GroupFacts("g", (behind,), is_kind_known=False)], "", ()).rows
    assert (row.reasons, row.is_shared) == ((), None)


def test_arrivals() -> None:
    """Arrivals are differences of queue offsets over all queues; the largest fills the chart."""
    arrivals = arrivals_of(0, 1_000, [[0, 4, 4, 10], [0, 0, 0, 2]])
    assert arrivals.counts == (4, 0, 8)
    assert [bar.height for bar in arrivals.bars] == [HEIGHT / 2, 0, HEIGHT]
    assert bars(()) == ()
    assert [bar.height for bar in bars((0, 0))] == [0, 0]


def test_causes_of_dead_letters() -> None:
    """Letters are counted once, by topic, reason and age; a condition selects a topic of any name."""
    hour = 3_600_000
    now_ms = 1_000 * hour
    deaths = [
        *(Death("orders", 3, now_ms - age) for age in (0, hour, hour + 1, 24 * hour, 200 * hour)),
        Death("orders", 1, now_ms),
        Death("it's", 0, now_ms + hour),
        Death("", 5, now_ms),
    ]
    causes = {(cause.origin_topic, cause.reason): cause for cause in causes_of(deaths, 3, now_ms)}
    failed = causes["orders", "all attempts failed"]
    assert (failed.letter_count, failed.ages) == (5, {"hour": 2, "day": 2, "week": 0, "older": 1})
    assert (failed.oldest_ms, failed.newest_ms) == (now_ms - 200 * hour, now_ms)
    assert causes["orders", "given up before the last attempt"].letter_count == 1
    assert sum(sum(cause.ages.values()) for cause in causes.values()) == len(deaths)
    for cause in causes.values():
        names = [name.decode() for name in parse_where(cause.where, field="where").names]
        assert names == ["DLQ_ORIGIN_TOPIC"], cause.where
    assert {cause.reason for cause in causes_of(deaths, None, now_ms)} == {"not known"}
    assert span_of("<b>", now_ms) == (None, None)


def test_cursors() -> None:
    """A cursor names queues and offsets; everything else is refused."""
    assert cursor_of(cursor_text({1: 5, 0: 3})) == {0: 3, 1: 5}
    for wrong in ("", "0", "0.", "0.1,", "a.b", "0.1;1.2", "-1.0", "0." + "9" * 19, ",".join(["0.0"] * 33)):
        with pytest.raises(ValueError, match="cursor"):
            cursor_of(wrong)


def test_hostile_text_in_each_field() -> None:
    """No field of a message becomes markup, and invisible characters are shown as escapes."""
    raw = message_pb2.StoredMessage(
        topic=HOSTILE, body=HOSTILE.encode(), offset_message_id=HOSTILE, born_time_ms=2**62, store_time_ms=-(2**62),
        properties={HOSTILE: HOSTILE, "TAGS": HOSTILE, "KEYS": HOSTILE, "UNIQ_KEY": HOSTILE},
    )  # fmt: skip
    hostile, gaps = Message(raw), (Gap(HOSTILE, HOSTILE),)
    row = row_of(hostile, PLAIN)
    queue = GroupQueue(HOSTILE, 0, 0, 1, 1, reasons=(Reason(HOSTILE, HOSTILE, 0, 1, 2**62, is_longer=True),))
    facts = GroupFacts(HOSTILE, (queue,))
    meant = wanted(HOSTILE, HOSTILE, NOW)
    states = tuple(
        GroupState(HOSTILE, True, state, 1, True, (HOSTILE,), 1, 2, 3, 2**62, receiver, 7, HOSTILE, 4, HOSTILE)
        for state in get_args(State)
        for receiver in ("", HOSTILE)
    )
    pages: list[Page] = [
        page_of(meant, HOSTILE, Search([HOSTILE], [HOSTILE], [row], [row]), gaps),
        page_of(meant, HOSTILE, Search(after=HOSTILE, next_after=HOSTILE), ()),
        page_of(meant, HOSTILE, Search(more=[More(HOSTILE, HOSTILE)], older=HOSTILE), ()),
        page_of(meant, HOSTILE, Search(messages=[waiting_row(row, HOSTILE, due_ms=2**62)]), ()),
        message_page(HOSTILE, hostile, states, gaps, indexer_target="h:1", form="text", mask=PLAIN),
        message_page(HOSTILE, None, (), gaps, indexer_target="h:1", form="", mask=PLAIN),
        message_page(HOSTILE, None, (), (), indexer_target="h:1", form="", mask=PLAIN, refusal=HOSTILE),
        groups_page([facts], "", gaps),
        group_page(HOSTILE, facts, gaps, PLAIN),
        group_page(HOSTILE, None, (), PLAIN),
        delayed_page(
            DelayedQuestion(HOSTILE, HOSTILE, HOSTILE, HOSTILE), gaps,
            now_ms=0, mask=PLAIN, refusal=HOSTILE, next_token=HOSTILE,
            messages=[DelayedMessage(HOSTILE, 2**62, HOSTILE, hostile)], levels=[DelayLevel(1, 1.0, 1, 1.0, HOSTILE)],
        ),
        transactions_page(
            HOSTILE, gaps, refusal=HOSTILE, next_token=HOSTILE,
            transactions=[(OpenTransaction(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0, NOW, 1, None), row)],
        ),
    ]  # fmt: skip
    for page in pages:
        html = Renderer().page(page, path="/", twin="/find.json", can_log_out=True)
        assert SCRIPT not in html
        assert not re.search(r"<(img|script(?! src=\"/static/))", html)
        shown = re.sub(r'(?:value|data-copy)="[^"]*"', "", html)
        assert not set(shown) & {"\u202e", "\x07", "\x1b", "\x7f"}
    assert visible("a\u202e\x1b\n") == "a\\u202e\\x1b\n"


def test_a_full_page_of_messages_is_light() -> None:
    """A page of as many messages as a search shows, with keys and previews of JSON, has less than 100 kB."""
    body = b'{"year":2013,"month":1,"day":1,"dep_time":832,"carrier":"MQ","flight":4521,"tailnum":"N725MQ"}' * 3
    keys = {"KEYS": "MQ4521 N725MQ", "TAGS": "MQ", "UNIQ_KEY": "F" * 32}
    row = row_of(message(body, properties=keys, store_time_ms=1_795_397_076_803), PLAIN)
    rows = [replace(row, id=f"{at:032X}", queue_offset=at) for at in range(MESSAGES_SHOWN_MAX)]
    page = page_of(wanted("N725MQ", "", NOW), "", Search(messages=rows), ())
    html = Renderer().page(page, path="/", twin="/find.json", can_log_out=False)
    assert 50_000 < len(html) < 100_000


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
