# SPDX-License-Identifier: Apache-2.0
"""Find: times as people and browsers write them, refusals, and searches in parts."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from libs.moments import UNDERSTOOD
from services.console.pages.find import More, Search, page_of, shown_in, wanted
from services.console.pages.page import Gap
from services.console.pages.rows import MessageRow
from services.console.pages.waiting import waiting_row

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
ROW = MessageRow("id", "orders", 0, 5, 9, 1_000, "", ("k",), 1, "", 0, "", "")


@pytest.mark.parametrize(
    "text",
    [
        "2:50:49 PM",
        "2:50:49\u202fPM",
        "14:50:49",
        "2026-11-26 2:50:49 PM",
        "2026-11-26 13:50:49 UTC",
        "Nov 26 14:50:49",
    ],
)
def test_a_time_that_a_page_shows_is_found(text: str) -> None:
    """A time that is copied from a page, in any of its forms, means the same moment in the reader's zone."""
    meant = wanted(text, "Europe/Berlin", NOW)
    assert (meant.moment_ms, meant.time_refusal) == (wanted("2026-11-26T13:50:49Z", "", NOW).moment_ms, "")


@pytest.mark.parametrize("text", ["a b", "25:00 o'clock", "2026-13-26 12:03", "in two days", "3/4/2026 10:00"])
def test_a_text_without_a_meaning_is_told_the_forms(text: str) -> None:
    """No search is made for a text that can mean nothing, and the page says which times are understood."""
    page = page_of(wanted(text, "", NOW), "", Search(), ())
    assert (page.outcome, page.status) == ("not_found", 200)
    assert page.verdict.startswith("Not understood: keys, ids and names have no spaces, and ")
    assert UNDERSTOOD in page.verdict or "give 2026-03-04 or 2026-04-03" in page.verdict


@pytest.mark.parametrize(
    ("text", "is_told"), [("25:00", True), ("2026-13-26", True), ("-5q", True), ("order-17", False)]
)
def test_a_key_that_looks_like_a_time(text: str, is_told: bool) -> None:
    """A key is looked up all the same; if it looks like a time and is none, the verdict says so."""
    verdict = page_of(wanted(text, "", NOW), "", Search(looked_topic_count=2, has_waiting=True), ()).verdict
    assert verdict.startswith(
        "Not found: no name, and no message in 2 topics, no delayed message and no open transaction."
    )
    assert ("As a time it is not understood" in verdict) is is_told


def test_a_search_in_parts_says_what_is_left() -> None:
    """While topics are left, nothing is said to be missing, and the next part searches the same moment."""
    left = Search(looked_topic_count=1_000, topic_count=2_500, next_after="t-0999")
    page = page_of(wanted("-1h", "", NOW), "", left, ())
    assert (page.outcome, page.status) == ("in_parts", 200)
    assert page.verdict == "Not found so far: 1,000 of 2,500 topics searched, 1,500 are left."
    assert wanted(page.part_text, "", datetime.now(UTC)).moment_ms == page.moment_ms
    assert page_of(wanted("order-17", "", NOW), "", left, ()).part_text == "order-17"
    assert page_of(wanted("-1h", "", NOW), "", left, (Gap("a", "away"),)).status == 503
    found = Search(near=[ROW], looked_topic_count=1_000, topic_count=2_500, next_after="t-0999")
    verdict = page_of(wanted("-1h", "", NOW), "", found, ()).verdict
    assert verdict == "1 message of this minute; 1,000 of 2,500 topics searched, 1,500 are left."


def test_waiting_messages_are_in_the_trail() -> None:
    """A delayed message and an open transaction have the topic that they will come to, and are counted apart."""
    waiting = (waiting_row(ROW, "later", due_ms=9), waiting_row(ROW, "later"))
    rows = [replace(row, id=f"id-{at}", store_time_ms=at) for at, row in enumerate((ROW, *waiting))]
    page = page_of(wanted("k", "", NOW), "", Search(messages=rows, looked_topic_count=1), ())
    assert [(row.topic, row.waits_as) for row in page.messages] == [
        ("orders", ""), ("later", "delayed"), ("later", "transaction")
    ]  # fmt: skip
    assert page.verdict == "3 messages in 2 topics, 2 of them not delivered yet; 1 topic searched."
    assert page.commands == (
        "reput query key orders k", "reput query key later k", "reput delay list --key=k", "reput tx list"
    )  # fmt: skip


def test_topics_that_have_more() -> None:
    """Of a topic all messages that were found are shown, or none, so that a link goes on behind them exactly."""
    found = [([ROW] * 2, ""), ([ROW] * 3, "t"), ([ROW], "u"), ([], "v")]
    rows, more = shown_in(["a", "b", "c", "d"], found, 3)
    assert (len(rows), more) == (3, [More("b"), More("c", "u"), More("d", "v")])
    page = page_of(wanted("k", "", NOW), "", Search(messages=[ROW], more=more, looked_topic_count=4), ())
    assert page.verdict == "1 message in 1 topic, the newest of each topic; 3 topics have more; 4 topics searched."
    older = Search(messages=[ROW], looked_topic_count=1, older="t")
    assert page_of(wanted("k", "", NOW), "orders", older, ()).verdict == (
        "1 older message in orders; the key has no others in this topic."
    )
    end = page_of(wanted("k", "", NOW), "orders", Search(older="t"), ())
    assert (end.outcome, end.verdict) == ("not_found", "Not found: the topic has no older message with this key.")


@pytest.mark.parametrize("text", ["23:50", "today 23:50", "11:50 PM", "23:50 UTC"])
def test_a_time_that_lies_ahead(text: str) -> None:
    """A time of today that is still to come is told, with the same time of yesterday."""
    meant = wanted(text, "", NOW)
    page = page_of(meant, "", Search(looked_topic_count=2), ())
    assert (page.is_ahead, [one.text for one in page.others]) == (True, ["2026-11-25T23:50:00.000Z"])
    assert page.verdict.endswith("t lies ahead.")


@pytest.mark.parametrize("text", ["11:50", "-1h", "yesterday 23:50", "2026-11-26T11:59:00Z", "now"])
def test_a_time_that_has_been(text: str) -> None:
    """No other time is offered for a time of the past."""
    page = page_of(wanted(text, "", NOW), "", Search(), ())
    assert (page.is_ahead, page.others) == (False, ())


@pytest.mark.parametrize("text", ["+1h", "2027-01-01", "tomorrow 10:00"])
def test_another_day_that_lies_ahead(text: str) -> None:
    """Only for a time of today the same time of yesterday is offered."""
    page = page_of(wanted(text, "", NOW), "", Search(), ())
    assert (page.is_ahead, page.others) == (True, ())


def test_texts_that_may_be_meant() -> None:
    """Ten digits may be seconds, and several words several keys; a search for each is offered."""
    seconds = page_of(wanted("1795690987", "", NOW), "", Search(looked_topic_count=2), ())
    assert [one.text for one in seconds.others] == ["2026-11-26T11:03:07.000Z"]
    assert seconds.verdict.endswith("It may be seconds since the epoch.")
    for text in ("179569098", "17956909871", "\u0661" * 10):
        assert wanted(text, "", NOW).others == ()
    assert [one.text for one in wanted("N725MQ MQ3713 N725MQ", "", NOW).others] == ["N725MQ", "MQ3713"]
    for text in ("Nov 26 11:50:49", " ".join("abcdefghijk"), "a a"):
        assert len(wanted(text, "", NOW).others) <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[2026-11-26 08:13:12,890]", "2026-11-26T08:13:12.890Z"),
        ("2026-11-26 08:13:12,890 INFO stored order-17", "2026-11-26T08:13:12.890Z"),
        ("ts=2026-11-26T08:13:12Z", "2026-11-26T08:13:12.000Z"),
        ('10.0.0.7 - [26/Nov/2026:09:13:12 +0100] "GET /"', "2026-11-26T08:13:12.000Z"),
        ("1795680792.890", "2026-11-26T08:13:12.890Z"),
        ("26.11.2026 08:13 Uhr", "2026-11-26T08:13:00.000Z"),
        ("3m", "-3m"),
        ("oldest", "1970-01-01"),
        ('"payment-4711"', "payment-4711"),
    ],
)
def test_a_text_that_was_copied_with_something_around_it(text: str, expected: str) -> None:
    """The page offers the time in a line of a log, a span as a distance, and a key without its quotes."""
    assert page_of(wanted(text, "", NOW), "", Search(), ()).others[0].text == expected
    assert wanted(expected, "", NOW).text == expected


def test_words_that_are_times_are_not_offered_as_keys() -> None:
    """Of several words a word that is a moment by itself is no key."""
    assert [one.text for one in wanted("gestern 08:13 order-17", "", NOW).others if one.what == "a key"] == [
        "gestern", "order-17",
    ]  # fmt: skip


def test_a_topic_that_is_not_there() -> None:
    """A typing error in the name of the topic is told, with the topics that are near, and is no "no message"."""
    page = page_of(wanted("order-17", "", NOW), "order", Search(topics=["orders"], unknown_topic="order"), ())
    assert page.verdict == "There is no topic order; topics with this text are listed."
    page = page_of(wanted("order-17", "", NOW), "x", Search(unknown_topic="x"), ())
    assert (page.outcome, page.verdict) == ("not_found", "Not found: there is no topic x.")


def test_an_id_that_lacks_a_digit() -> None:
    """The verdict says how long ids are."""
    verdict = page_of(wanted("7F00000100007C420000000000012BA", "", NOW), "", Search(), ()).verdict
    assert verdict.endswith("Ids have 32 or 56 digits, this text has 31.")
