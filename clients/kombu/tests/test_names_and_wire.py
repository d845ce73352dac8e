# SPDX-License-Identifier: Apache-2.0
"""Names, settings and messages without a store."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from kombu_reput import names, wire
from kombu_reput.settings import settings_of
from reput_client import Durability

NOW_MS = 1_800_000_000_000
QUEUES = (
    "celery",
    "a.b",
    "a-b",
    "a_b",
    "a%2Eb",
    "ä",
    "x y",
    "a/b",
    "",
    "%",
    "A" * 255,
    "A" * 254 + "B",
    "ü" * 127,
    "c\x06\x163",
)


def test_topics_of_all_names_are_valid_and_differ() -> None:
    """Each name of a queue has a topic and a group of its own, whatever its characters."""
    made = [
        names.topic_of(prefix, queue, level)
        for prefix in ("kombu", names.prefix_of("/a"), names.prefix_of("a-b"), names.prefix_of("x" * 300))
        for queue in QUEUES
        for level in range(4)
    ]
    assert len(set(made)) == len(made)
    for topic in made:
        assert re.fullmatch(r"[A-Za-z0-9_%-]{1,122}", topic)
    assert names.topic_of("kombu", "celery") == "kombu-celery"
    assert names.topic_of("kombu", "a.b", 3) == "kombu-a%2Eb%p3"


def test_settings_come_from_the_url_and_the_options() -> None:
    """The host is that of the store; options of the URL and of Kombu name single services."""
    plain = settings_of("reput://db", {})
    assert (plain.store, plain.commitlog, plain.delivery, plain.prefix) == ("db:8081", None, None, "kombu")
    full = settings_of("reput://:s%40e@db:9/app?indexer=a:1,b:1&ca_file=/ca&lease_s=5", {"lease_s": 7, "visibility": 1})
    assert (full.store, full.indexer, full.token, full.ca_file) == ("db:9", "a:1,b:1", "s@e", "/ca")
    assert (full.lease_s, full.prefix) == (7.0, "app")
    assert settings_of("reput://", {}).store is None
    assert settings_of("reput://?store=a:1,b:1", {}).store == "a:1,b:1"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("reput://h?lease=1", "the URL's option lease is unknown"),
        ("reput://h?lease_s=x", "lease_s is 'x': expected a number"),
        ("reput://h?lease_s=0", "lease_s is 0.0: expected 1.0 to 43200"),
        ("reput://h?attempts_max=1001", "attempts_max is 1001: expected 1 to 1000"),
        ("reput://h?durability=disk", "durability is 'disk': expected default, memory"),
    ],
)
def test_a_wrong_option_is_named(url: str, part: str) -> None:
    """A wrong option of the URL is refused with its value and limit."""
    with pytest.raises(ValueError, match=re.escape(part)):
        settings_of(url, {})


def test_an_eta_becomes_the_time_of_delivery() -> None:
    """Never early: rounded up, at most 40 days at a time, and left to the worker without a time zone."""
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)

    def due(eta: object) -> int | None:
        return wire.deliver_at({"headers": {"eta": eta}, "properties": {}}, NOW_MS)

    assert due((now + timedelta(seconds=1, microseconds=1)).isoformat()) == NOW_MS + 1001
    assert due((now - timedelta(seconds=1)).isoformat()) is None
    assert due((now + timedelta(days=99)).isoformat()) == NOW_MS + wire.DELAY_MS_MAX
    assert due((now + timedelta(days=1)).replace(tzinfo=None).isoformat()) is None
    assert [due(None), due("soon"), due(7)] == [None, None, None]
    assert wire.is_early({"headers": {"eta": (now + timedelta(days=59)).isoformat()}}, NOW_MS)
    assert not wire.is_early({"headers": {"eta": (now + timedelta(seconds=9)).isoformat()}}, NOW_MS)


def test_priorities_become_levels() -> None:
    """Levels follow the priority; a queue without `x-max-priority` has a single level."""
    assert wire.levels_of({"x-max-priority": 10}, 4) == (10, 4)
    assert wire.levels_of({"x-max-priority": 1}, 4) == (1, 2)
    assert [wire.levels_of(given, 4) for given in (None, {}, {"x-max-priority": "x"}, {"x-max-priority": -1})] == [
        (0, 1)
    ] * 4
    levels = [
        wire.level_of({"properties": {"priority": priority}}, 10, 4) for priority in (None, -5, 0, 3, 6, 9, 10, 99)
    ]
    assert levels == [0, 0, 0, 1, 2, 3, 3, 3]


def test_a_message_keeps_its_content() -> None:
    """A body is the JSON of Kombu's message, with the task's id as key and its name as tag."""
    raw = {"body": "eA==", "headers": {"id": "17", "task": "app.add"}, "properties": {"body_encoding": "base64"}}
    message = wire.new_message("t", raw, NOW_MS)
    assert (message.keys, message.tag, message.deliver_at) == ("17", "app.add", None)
    assert wire.decoded(bytes(message.body)) == {**raw, "properties": {"body_encoding": "base64", "delivery_info": {}}}
    assert wire.new_message("t", {"headers": {"id": "a b", "task": "a||b"}}, NOW_MS).keys == ()
    assert wire.durability({"properties": {"delivery_mode": 1}}, Durability.REPLICATED) is Durability.MEMORY
    for body in (
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"properties": 1}',
        b'{"body": "!", "properties": {"body_encoding": "base64"}}',
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - each body has words of its own
            wire.decoded(body)
