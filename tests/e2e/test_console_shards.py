# SPDX-License-Identifier: Apache-2.0
"""The console of `reput up --shards 2`: all shards, a topic over them, a change under way, and a shard that is away."""

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest
from reput_client import ChildQueue, QueuePlace, ShareChange

from tests.support.patience import LIMIT_S
from tests.support.sharded_console import KEY_COUNT, QUEUE_COUNT, Shards, sharded_console

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAGES = ("", "topics", "topics/orders", "groups", "dead-letters", "delayed", "transactions", "retention", "store")
WAIT_S_MAX = 14.0
"""Longest time of a page: four calls of three seconds in a row, and some for a busy machine."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    with sharded_console(tmp_path_factory.mktemp("shards") / "store") as found:
        yield found


def test_each_page_of_a_shard(shards: Shards, subtests: pytest.Subtests) -> None:
    """Each page says which shard it shows, its links stay there, and its twin and its commands name the shard."""
    for path in PAGES:
        with subtests.test(path):
            shards.complete(f"/shards/b/{path or 'find'}.json")
            page = shards.console.get(f"/shards/b/{path}")
            assert page.status == 200
            assert len(page.text.encode()) < 100_000
            assert f'<a href="/shards/a/{path}">a</a><a href="/shards/b/{path}" aria-current="true">b</a>' in page.text
            links = re.findall(r'(?:href|action)="(/[^"]*)"', page.text)
            kept = ("/shards/b/", "/static/", f"/shards/a/{path}")
            assert [link for link in links if link != "/shards" and not link.startswith(kept)] == []
            twin = re.search(r'<a href="([^"]+)">This page as JSON', page.text)
            assert twin is not None
            found = shards.console.json(twin[1].replace("&amp;", "&"))
            assert found["shard"] == "b"
            assert all(one.startswith(f"reput --store {shards.store.door} --shard b ") for one in found["commands"])
    for path in ("/topics/orders?span=1h", "/find.json?q=a", "/"):
        answer = shards.console.get(path)
        assert (answer.status, answer.headers["location"]) == (307, f"/shards/a{path}")
    assert shards.console.get("/shards/c/topics").status == 404
    assert shards.console.get("/shards/c/").status == 404


def test_all_shards(shards: Shards) -> None:
    """The page of all shards has the figures of `reput shards list`."""
    page = shards.complete("/shards.json")
    rows = {row["name"]: row for row in page["rows"]}
    listed = {row["shard"]: row for row in shards.commands("list")}
    assert (page["is_healthy"], list(rows), list(listed)) == (True, ["a", "b"], ["a", "b"])
    for name, row in rows.items():
        contents = row["contents"]
        figures = [contents[f"{one}_count"] for one in ("topic", "queue", "message")]
        assert figures == [listed[name][one] for one in ("topics", "queues", "messages")]
        assert (row["health"], row["state"]) == ("good", "answers")
        assert row["end_physical_offset"] > 0
        assert row["disks"]
    assert sum(row["contents"]["message_count"] for row in rows.values()) == KEY_COUNT


def test_find_at_all_shards(shards: Shards) -> None:
    """A key and an id are looked up at each shard, and each message has its shard; a time is of the page's shard."""
    found = shards.complete("/shards/b/find.json?q=all")
    assert (found["outcome"], found["verdict"]) == ("found", "Found at shard a, b.")
    rows = {row["id"]: row["shard"] for row in found["messages"]}
    assert {"a", "b"} == set(rows.values())
    assert {one["shard"] for one in found["more"]} | set(rows.values()) == {"a", "b"}
    for number in range(KEY_COUNT):
        (row,) = shards.complete(f"/shards/b/find.json?q=order-{number}")["messages"]
        assert row["shard"] == ("a" if row["queue_id"] < QUEUE_COUNT // 2 else "b")
        message = shards.console.json(f"/shards/{row['shard']}/messages/{row['id']}.json")
        assert message["row"]["keys"] == [f"order-{number}", "all"]
        assert row["id"] in {one["id"] for one in shards.complete(f"/shards/a/find.json?q={row['id']}")["messages"]}
    text = shards.console.get(f"/shards/{'b' if row['shard'] == 'a' else 'a'}/?q=order-{number}").text
    assert f'href="/shards/{row["shard"]}/messages/{row["id"]}"' in text
    missing = shards.complete("/shards/a/find.json?q=no-such-key")
    assert (missing["outcome"], missing["verdict"]) == ("not_found", "Not found at shard a, b.")
    near = shards.complete("/shards/a/find.json?q=1+hour+ago")
    assert [(one["shard"], one["outcome"] == "") for one in near["shards"]] == [("a", False), ("b", True)]


def test_each_shard_has_a_history(shards: Shards) -> None:
    """A topic is remembered at each shard by itself."""
    end_s = time.monotonic() + LIMIT_S
    for shard in ("a", "b"):
        while not (history := shards.complete(f"/shards/{shard}/topics/orders.json")["history"])["is_remembered"]:
            assert time.monotonic() < end_s, history
            time.sleep(0.2)


def test_a_topic_over_shards(shards: Shards) -> None:
    """After a split the page of a topic has all its queues, and a change under way until a command finishes it."""
    shards.commands("split", "orders", "0", "--to", "a", "--to", "b")
    shown = {row["queue_id"]: row for row in shards.commands("topic", "orders")}
    for shard in ("a", "b"):
        layout = shards.complete(f"/shards/{shard}/topics/orders.json")["layout"]
        assert layout["change"] is None
        for queue in layout["queues"]:
            row = shown[queue["queue_id"]]
            assert (queue["shard"], queue["first_hash"], queue["last_hash"], queue["message_count"]) == (
                row["shard"], row["first_hash"], row["last_hash"], row["messages"],
            )  # fmt: skip
            assert (queue["is_sealed"], queue["parents"]) == (row["state"] == "sealed", row["parents"])
        assert len(layout["queues"]) == len(shown) == QUEUE_COUNT + 2
    begin_change(shards)
    text = shards.console.get("/shards/b/topics/orders").text
    assert "A change of this topic is under way: 1 at a → 6 at b." in text
    assert "<code>reput shards finish orders</code>" in text
    shards.commands("finish", "orders")
    layout = shards.complete("/shards/a/topics/orders.json")["layout"]
    assert (layout["change"], [queue["queue_id"] for queue in layout["queues"]]) == (None, [2, 3, 4, 5, 6, 0, 1])


def begin_change(shards: Shards) -> None:
    """Begin to move queue 1 to shard b, and leave it there, as a command that is killed."""
    with shards.client(0) as client:
        share = client.topics.get("orders").share
        assert share is not None
        version, moved = share.version + 10, share.queues[1]
        child = ChildQueue(QueuePlace("b", QUEUE_COUNT + 2), moved.first_hash, moved.last_hash)
        change = ShareChange(version, (QueuePlace("a", moved.queue_id),), (child,))
        count = child.place.queue_id + 1
        client.topics.update(
            "orders", read_queue_count=count, write_queue_count=count,
            share=share._replace(version=version, change=change),
        )  # fmt: skip


def test_a_topic_of_another_shard(shards: Shards) -> None:
    """A topic that is whole at a shard is found at the other shards, which say where it is."""
    with shards.client(1) as client:
        client.topics.create("alone")
    found = shards.complete("/shards/a/topics/alone.json")
    assert (found["row"], found["layout"]["shards"]) == (None, ["b"])
    assert '<a href="/shards/b/topics/alone">b</a>' in shards.console.get("/shards/a/topics/alone").text
    assert shards.console.get("/shards/a/topics/nope").status == 404


def test_a_shard_that_is_away(shards: Shards) -> None:
    """A shard that does not answer is named with the reason, on pages that the others fill, and no page hangs."""
    stopped = [shards.process(service, 1) for service in ("commitlog", "indexer")]
    for process_id in stopped:
        os.kill(process_id, signal.SIGSTOP)
    try:
        for path in ("/shards.json", "/shards/a/topics/orders.json", "/shards/b/topics/orders.json"):
            begin_s = time.monotonic()
            found = shards.console.json(path)
            assert time.monotonic() - begin_s < WAIT_S_MAX
            assert any("shard b" in gap["subject"] for gap in found["gaps"]) or found["shard"] == "b", found["gaps"]
            assert found["gaps"]
        overview = shards.console.json("/shards.json")
        (first, away) = overview["rows"]
        assert (first["health"], away["health"], away["contents"]) == ("good", "away", None)
        assert away["state"].startswith("CommitLog: ")
        assert overview["verdict"] == "Look at b."
        layout = shards.console.json("/shards/b/topics/orders.json")["layout"]
        assert {queue["shard"] for queue in layout["queues"]} == {"a"}
        assert shards.console.get("/shards/b/topics").status == 503
        partly = shards.console.json("/shards/a/find.json?q=all")
        assert (partly["outcome"], {row["shard"] for row in partly["messages"]}) == ("found", {"a"})
        assert "Could not look everywhere at shard b" in partly["verdict"]
        missing = shards.console.get("/shards/a/find.json?q=no-such-key")
        assert (missing.status, missing.json["outcome"]) == (503, "could_not_look")
    finally:
        for process_id in stopped:
            os.kill(process_id, signal.SIGCONT)
    end_s = time.monotonic() + LIMIT_S
    while not (found := shards.console.json("/shards.json"))["is_healthy"]:
        assert time.monotonic() < end_s, found
