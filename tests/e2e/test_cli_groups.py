# SPDX-License-Identifier: Apache-2.0
"""`reput groups`, `consume` and `dlq` against a running store with a Delivery, in both forms."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands.groups import letters
from cli.commands.groups.groups import COLUMNS, SPARE_COLUMNS
from cli.output.tables import table_lines
from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, Store, run, start, store

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store for all tests. Each test uses its own topics and groups."""
    with store(tmp_path_factory.mktemp("store"), "--delivery", "--delivery-port", "0") as running:
        yield running


def put(running: Store, topic: str, *bodies: str, options: tuple[str, ...] = ()) -> None:
    """Put messages, and wait until they are indexed."""
    running.json("put", topic, *bodies, "--queue", "0", *options)
    end_s = time.monotonic() + LIMIT_S
    while not running.run("query", "time", topic, "--json").rows:
        assert time.monotonic() < end_s


def consumed(running: Store, topic: str, *options: str) -> list[str]:
    """Return the messages that a member of the group of the topic's name gets."""
    return [row["body"] for row in running.json("consume", topic, "--group", topic, *options)]


def bury(running: Store, topic: str, count: int) -> None:
    """Have a group of the topic's name bury this many messages, and wait until they are dead letters."""
    running.json("groups", "set", topic, "--attempts", "1", "--invisible", "0.2")
    script = (
        "import reput_client, sys\n"
        "topic, count = sys.argv[1], int(sys.argv[2])\n"
        "with reput_client.connect() as client, client.share_consumer(topic, group=topic) as consumer:\n"
        "    while count:\n"
        "        received = consumer.receive(count)\n"
        "        consumer.bury(*received)\n"
        "        count -= len(received)\n"
    )
    with start([REPUT[0], "-c", script, topic, str(count)], running.client_environment()) as process:
        assert process.wait(LIMIT_S) == 0
    end_s = time.monotonic() + LIMIT_S
    while running.json("groups", "show", topic)[0]["dead_letter_count"] < count:
        assert time.monotonic() < end_s


def test_consume(running: Store) -> None:
    """Messages are printed once for a group, up to the requested number, in each form.

    The exit code is 3 when no message arrives.
    """
    put(running, "eaten", "a", "b", "c", "d")
    assert consumed(running, "eaten", "--count", "1") == ["a"]
    assert running.run("consume", "eaten", "-g", "eaten", "-n", "1", "--raw").output == "b\n"
    text = running.run("consume", "eaten", "-g", "eaten", "-n", "1").output
    assert text.startswith("eaten queue 0 offset 2, ")
    assert consumed(running, "eaten", "--wait", "10") == ["d"]
    nothing = running.run("consume", "eaten", "--group", "eaten", "--wait", "0.5")
    assert (nothing.code, nothing.output) == (3, "")
    assert "NO_MESSAGES" in nothing.errors
    assert running.run("consume", "eaten", "--group", "other", "-n", "4", "--raw").output == "a\nb\nc\nd\n"
    assert running.run("consume", "nobody-made-it", "--group", "g").code == 3
    (shown,) = running.json("groups", "show", "eaten")
    assert (shown["is_shared"], shown["lag"], shown["in_flight_count"]) == (True, 0, 0)


def test_consume_until_interrupted(running: Store) -> None:
    """`reput consume` waits for messages, acknowledges the printed messages, and ends by Ctrl-C without an error."""
    put(running, "awaited", "first")
    command = [*REPUT, "consume", "awaited", "--group", "awaited", "--raw"]
    pipe = subprocess.PIPE
    with start(command, running.client_environment(), stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "first\n"
        running.json("put", "awaited", "second", "--queue", "3")
        assert process.stdout.readline() == "second\n"
        end_s = time.monotonic() + LIMIT_S
        while running.json("groups", "show", "awaited")[0]["lag"]:  # the acknowledgement is on its way
            assert time.monotonic() < end_s
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
        assert process.stderr.read() == ""
    assert running.json("groups", "show", "awaited")[0]["lag"] == 0


def test_a_policy_is_set_shown_and_paused(running: Store) -> None:
    """Setting a policy keeps the fields that are not named.

    A paused group gets no messages. A list has both kinds of groups.
    """
    put(running, "ruled", "a", "b")
    others = {row["group"] for row in running.json("groups", "list")}
    assert not any(name.startswith("rmq_sys") for name in others)
    running.json("groups", "set", "ruled", "--attempts", "3", "--backoff", "1", "--backoff", "2.5", "--ordered")
    for verb in ("pause", "resume"):
        refused = running.run("groups", verb, "a-typing-error")
        assert (refused.code, "GROUP_NOT_FOUND" in refused.errors) == (3, True)
    assert "a-typing-error" not in {row["group"] for row in running.json("groups", "list")}
    (policy,) = running.json("groups", "pause", "ruled")
    wanted = {"attempts_max": 3, "backoffs_s": [1.0, 2.5], "invisible_s": 60.0, "is_ordered": True, "is_paused": True}
    assert {name: policy[name] for name in wanted} == wanted
    assert running.run("consume", "ruled", "--group", "ruled", "--wait", "0.5").code == 3
    running.json("groups", "resume", "ruled")
    assert consumed(running, "ruled", "--count", "1") == ["a"]
    running.json("groups", "commit", "keeper", "ruled", "--queue", "0", "--offset", "2")
    rows = {(row["group"], row["queue_id"]): row for row in running.json("groups", "list")}
    shared, kept = rows["ruled", 0], rows["keeper", 0]
    assert (shared["queue_offset"], shared["lag"], shared["is_shared"], shared["in_flight_count"]) == (1, 1, True, 0)
    assert shared["oldest_s"] >= 0
    assert (kept["queue_offset"], kept["lag"], kept["is_shared"]) == (2, 0, False)
    assert running.json("groups", "list", "--group", "keeper") == [kept]
    text = running.run("groups", "show", "ruled").output
    lines = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
    assert (lines["lag"].strip(), lines["attempts max"].strip()) == ("1", "3")
    assert lines["oldest"].strip().endswith("s")
    assert {row["group"] for row in running.json("groups", "list")} == {"ruled", "keeper", *others}
    assert max(map(len, table_lines(running.json("groups", "list"), COLUMNS, 80, spare=SPARE_COLUMNS))) <= 80
    assert running.json("groups", "show", "keeper")[0]["offsets"][0]["queue_offset"] == 2
    assert running.run("groups", "show", "nobody").code == 3
    refused = running.run("groups", "commit", "ruled", "ruled", "--queue", "0", "--offset", "0")
    assert (refused.code, "GROUP_SHARES" in refused.errors) == (5, True)


def test_a_group_is_moved_after_a_look(running: Store) -> None:
    """A dry run of a reset prints its moves, and a reset without --yes is refused.

    After the reset messages are delivered again.
    """
    put(running, "moved", "a", "b")
    assert consumed(running, "moved", "--count", "2") == ["a", "b"]
    plan = running.json("groups", "reset", "moved", "moved", "--to", "earliest", "--dry-run")
    assert {"topic": "moved", "queue_id": 0, "from_queue_offset": 2, "to_queue_offset": 0, "settled_count": 0} in plan
    asked = running.run("groups", "reset", "moved", "moved", "--to", "earliest")
    assert (asked.code, "move group moved of topic moved to earliest" in asked.errors) == (2, True)
    assert running.json("groups", "reset", "moved", "moved", "--to", "earliest", "--yes") == plan
    assert consumed(running, "moved", "--count", "2") == ["a", "b"]
    running.json("groups", "commit", "reader", "moved", "--queue", "0", "--offset", "1")
    (row,) = running.json("groups", "reset", "reader", "moved", "--to", "latest", "--dry-run")
    assert (row["from_queue_offset"], row["to_queue_offset"]) == (1, 2)
    assert running.json("groups", "list", "--group", "reader")[0]["queue_offset"] == 1
    running.json("topics", "create", "wide", "--queues", "2")
    for queue in ("0", "1"):
        put(running, "wide", "x", options=("--queue", queue))
    running.json("groups", "commit", "reader", "wide", "--queue", "1", "--offset", "0")
    plan = running.json("groups", "reset", "reader", "wide", "--to", "latest", "--dry-run")
    assert [(row["from_queue_offset"], row["to_queue_offset"]) for row in plan] == [(None, 1), (0, 1)]
    made = running.json("groups", "reset", "reader", "wide", "--to", "latest", "--yes")
    assert [row["queue_offset"] for row in made] == [1, 1]
    refused = running.run("groups", "delete", "moved", "--yes")
    assert (refused.code, "GROUP_IN_USE" in refused.errors, "--force" in refused.errors) == (5, True, True)
    assert running.run("groups", "delete", "moved", "--force", "--yes").code == 0
    assert running.run("groups", "show", "moved").code == 3


def test_dead_letters(running: Store) -> None:
    """Dead letters are listed with their origin, shown, replayed after a dry run, and then no longer listed."""
    assert running.run("dlq", "list", "dying").code == 3
    put(running, "dying", "a", "b", "c", options=("--key", "k1", "--property", "region=eu"))
    bury(running, "dying", 3)
    rows = running.json("dlq", "list", "dying")
    assert sorted(row["body"] for row in rows) == ["a", "b", "c"]
    assert {(row["origin_topic"], row["origin_queue_id"], row["attempt_count"]) for row in rows} == {("dying", 0, 1)}
    assert sorted(row["origin_queue_offset"] for row in rows) == [0, 1, 2]
    assert running.json("dlq", "list", "dying", "--limit", "1") == rows[:1]
    assert running.run("dlq", "list", "dying", "--end", "-1h").code == 3
    lines = list(table_lines(rows, letters.COLUMNS, 80, spare=letters.SPARE_COLUMNS))
    assert (len(lines), max(map(len, lines)) <= 80) == (len(rows) + 3, True), lines
    assert running.json("dlq", "show", "dying", rows[1]["place"]) == [rows[1]]
    shown = running.run("dlq", "show", "dying", rows[0]["place"]).output
    assert "origin topic" in shown
    assert shown.endswith(f"\n  {rows[0]['body']}\n")
    assert running.run("dlq", "show", "dying", "17").code == 2
    (dry,) = running.json("dlq", "replay", "dying", "--where", "region = 'eu'", "--dry-run")
    topics = [{"topic": "dying", "replayed_count": 3, "refused_count": 0, "refusal": ""}]
    assert (dry["topics"], dry["is_dry_run"], dry["total_count"]) == (topics, True, 3)
    one = running.run("dlq", "replay", "dying", rows[0]["place"])
    assert [line.split() for line in one.output.splitlines()][1][:2] == ["dying", "1"]
    assert len(running.json("dlq", "list", "dying")) == 2
    (rest,) = running.json("dlq", "replay", "dying", "--rate", "100")
    assert (rest["topics"][0]["replayed_count"], rest["done_before_count"], rest["is_done"]) == (2, 1, True)
    assert running.run("dlq", "replay", "dying").code == 3
    assert sorted(consumed(running, "dying", "--count", "3")) == ["a", "b", "c"]


def test_letters_whose_topic_takes_none_are_told(running: Store) -> None:
    """A replay that leaves letters prints their number and the reason, and has exit code 5."""
    put(running, "closed", "a")
    bury(running, "closed", 1)
    running.json("topics", "update", "closed", "--not-writable")
    result = running.run("dlq", "replay", "closed", "--json")
    assert result.code == 5
    assert json.loads(result.output)["topics"][0]["refusal"] == "topic closed is not writable"
    assert "NOT_REPLAYED: 1 letter: topic closed is not writable" in result.errors


def test_verify_has_no_remark_about_a_store_that_was_stopped_in_order(tmp_path: Path) -> None:
    """`reput verify` finds no fault in a store that was stopped in order.

    Delivery's consumer offset names a record of the journal, and is checked as such.
    """
    with store(tmp_path, "--delivery", "--delivery-port", "0") as first:
        put(first, "orders", "a", "b")
        assert sorted(consumed(first, "orders", "--count", "2")) == ["a", "b"]
        assert first.stop().code == 0
    result = run("verify", str(tmp_path), "--json")
    assert (result.code, result.rows[-1]["findings"]) == (0, []), result.output


def test_a_place_that_no_reader_can_have(running: Store) -> None:
    """A place that a reader can't have is refused by topic, queue and queue offset.

    The error has the valid values. The end of a queue is a valid place.
    """
    put(running, "placed", "a", "b")
    for arguments, code, text in (
        (("nobody-made-it", "--queue", "0", "--offset", "0"), 3, "TOPIC_NOT_FOUND"),
        (("placed", "--queue", "99", "--offset", "0"), 3, "no queue 99, but queues 0 to 3"),
        (("placed", "--queue", "0", "--offset", "3"), 5, "must be 0 to 2, not 3"),
    ):
        refused = running.run("groups", "commit", "placer", *arguments)
        assert (refused.code, text in refused.errors) == (code, True), refused
    assert running.run("groups", "commit", "placer", "placed", "--queue", "0", "--offset", "2").code == 0


def test_a_query_of_a_topic_that_is_not_there(running: Store) -> None:
    """A query of a missing topic by time or key fails with TOPIC_NOT_FOUND.

    This is true also after the topic was deleted and its queues were removed.
    """
    put(running, "gone", "a", options=("--key", "k"))
    running.json("topics", "delete", "gone", "--yes")
    running.json("index", "remove-unused", "--yes")
    end_s = time.monotonic() + LIMIT_S
    while running.run("query", "key", "gone", "k").code == 0:  # until the Indexer hears of the deletion
        assert time.monotonic() < end_s
    for arguments in (("time", "gone"), ("key", "gone", "k"), ("time", "not-made"), ("key", "not-made", "k")):
        refused = running.run("query", *arguments)
        assert (refused.code, "TOPIC_NOT_FOUND" in refused.errors) == (3, True), refused


def test_a_message_s_state_is_told(running: Store) -> None:
    """The state of a message at a group, before and after it is settled; no such group is exit code 3."""
    put(running, "told", "a", "b")
    running.json("groups", "set", "told")
    assert (
        running.json("groups", "message", "told", "told", "--queue", "0", "--offset", "1")[0]["stage"] == "no_position"
    )
    assert consumed(running, "told", "--count", "1") == ["a"]
    found = [running.json("groups", "message", "told", "told", "--queue", "0", "--offset", at)[0] for at in "01"]
    assert found[0]["stage"] == "settled"
    assert (found[1]["topic"], found[1]["queue_offset"]) == ("told", 1)
    missing = running.run("groups", "message", "nobody", "told", "--queue", "0", "--offset", "0", "--json")
    assert (missing.code, "GROUP_NOT_FOUND" in missing.errors) == (3, True)
