# SPDX-License-Identifier: Apache-2.0
"""The console's pages of waiting messages, retention, audit and connections, against a real store."""

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import reput_client

from libs.runtime.trust.tokens import find_local_token, local_token_path
from libs.runtime.version import VERSION
from tests.console.filling import DELAYED_COUNT, TRANSACTION_COUNT, fill
from tests.support.console import RunningConsole, console_of
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("console"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    """A console with the token of an operator."""
    token = str(local_token_path())
    with console_of(filled.targets, "--store-timeout-ms", "60000", "--store-token-file", token) as running:
        yield running


def eventually(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Ask until an answer fulfils a condition, and return it."""
    end_s = time.monotonic() + LIMIT_S
    while not holds(found := ask()):
        assert time.monotonic() < end_s, found
        time.sleep(0.1)
    return found


def test_each_service_has_its_version(console: RunningConsole) -> None:
    """All services of a store tell their version, Delivery too."""
    rows = console.json("/store.json")["services"]
    assert {row["name"]: row["version"] for row in rows} == dict.fromkeys(
        ("CommitLog", "Indexer", "Janitor", "Delivery"), VERSION
    )


def test_delayed_messages_in_parts(console: RunningConsole) -> None:
    """Parts of the list have each message once, the earliest first, with the command that cancels it."""
    rows, after = [], ""
    while True:
        part = console.json(f"/delayed.json?topic=reminders&after={quote(after)}")
        rows += part["rows"]
        if not (after := part["next_token"]):
            break
    times = [row["delivery_time_ms"] for row in rows]
    assert len({row["message_id"] for row in rows}) == len(rows) == DELAYED_COUNT + 1
    assert times == sorted(times)
    assert rows[0]["cancel_command"] == f"reput delay cancel reminders {rows[0]['message_id']}"
    assert not any(row["is_due"] for row in rows)


def test_delayed_messages_by_key_and_time(console: RunningConsole, filled: Store) -> None:
    """A key, and times in the reader's zone, select; a wrong time and a wrong token are explained, never a failure."""
    (only,) = console.json("/delayed.json?topic=reminders&key=reminder-7")["rows"]
    assert only["row"]["keys"] == ["reminder-7"]
    due_later = console.json(f"/delayed.json?start={only['delivery_time_ms']}&end=%2B2d")["rows"]
    assert due_later[0]["message_id"] == only["message_id"]
    assert console.json("/delayed.json?end=%2B1h")["rows"] == []
    assert "is no time" in console.json("/delayed.json?start=soon")["refusal"]
    assert console.json("/delayed.json?key=a&start=-1h")["refusal"]
    for path in ("/delayed.json?after=wrong", "/transactions.json?after=wrong", "/delayed.json?topic=%00"):
        found = console.get(path)
        assert (found.status, bool(found.json["refusal"])) == (200, True), path
    with reput_client.connect(**filled.targets) as client:
        client.delayed.cancel("reminders", only["message_id"])
    assert console.json("/delayed.json?topic=reminders&key=reminder-7")["rows"] == []


def test_open_transactions(console: RunningConsole, filled: Store) -> None:
    """An open transaction is listed with its group and its commands until it ends."""
    rows = console.json("/transactions.json?group=shop")["rows"]
    assert len(rows) == TRANSACTION_COUNT
    assert console.json("/transactions.json?group=other")["rows"] == []
    assert rows[0]["rollback_command"] == f"reput tx resolve {rows[0]['id']} --rollback"
    assert rows[0]["next_check_ms"] > rows[0]["begun_ms"]
    assert console.get(f"/messages/{rows[0]['offset_message_id']}").status == 200
    with reput_client.connect(**filled.targets) as client:
        client.transactions.rollback(rows[0]["id"])
    left = console.json("/transactions.json")["rows"]
    assert [row["id"] for row in left] == [row["id"] for row in rows[1:]]


def test_pages_without_delivery(filled: Store) -> None:
    """Without Delivery the pages of delayed messages and of transactions say so."""
    with console_of(filled.targets, "--delivery-target", "") as console:
        for path in ("/delayed", "/transactions"):
            assert "has no Delivery" in console.get(path).text
            assert console.json(f"{path}.json")["has_delivery"] is False


def test_retention_and_the_cost_of_an_earlier_deletion(console: RunningConsole, filled: Store) -> None:
    """Each segment has its reason; a trial names the groups that would miss messages, and deletes nothing."""
    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        for _ in range(12):
            last = producer.send("filler", os.urandom(300_000)).result()
        client.query.wait_indexed(last)
    page = console.json("/retention.json")
    kinds = [one["kind"] for one in page["segments"]]
    assert page["gaps"] == []
    assert (kinds[-1], set(kinds[:-1])) == ("active", {"kept"})
    assert page["segment_count"] == len(kinds) >= 3
    assert sum(one["segment_count"] for one in page["time_line"]["blocks"]) == len(kinds)
    assert page["trial"]["is_decided"] is False
    trial = eventually(lambda: console.json("/retention.json?hours=0")["trial"], lambda one: one["segment_count"] >= 2)
    assert {one["meaning"] for one in trial["stays"]} >= {"takes appends"}
    losses = {(one["group"], one["topic"]): one["message_count"] for one in trial["losses"]}
    assert losses["readers", "orders"] == 170
    assert "170" in console.get("/retention?hours=0").text
    of_topic = console.json("/retention.json?bytes=1&topic=payments")["trial"]
    assert (of_topic["expired_message_count"], [one["topic"] for one in of_topic["losses"]]) == (4, [])
    assert console.json("/retention.json?hours=100")["trial"]["losses"] == []
    assert [one["kind"] for one in console.json("/retention.json")["segments"]] == kinds
    for wrong in ("hours=-1", "hours=x", "hours=9999999", "bytes=1e3", "topic=orders", "hours=1&topic=%25%25%00"):
        found = console.get(f"/retention.json?{wrong}")
        assert (found.status, bool(found.json["trial"]["refusal"])) == (200, True), wrong


def test_retention_without_its_answers(filled: Store) -> None:
    """Without a right, or without the Janitor, segments are shown, and the missing answers are named."""
    away = {**filled.targets, "janitor": "127.0.0.1:1"}
    for targets, reason in ((filled.targets, "lacks the right"), (away, "the Janitor at 127.0.0.1:1 does not answer")):
        with console_of(targets, "--store-timeout-ms", "2000") as console:
            page = console.json("/retention.json")
            assert [one["kind"] for one in page["segments"]][-1] == "active"
            (gap,) = page["gaps"]
            assert reason in gap["reason"]
            assert "the reasons to keep segments" in gap["subject"] or "more" in gap["subject"]
            text = console.get("/retention?hours=1").text
            assert "Could not look" in text
            assert text.index(">Try<") < text.index("No result:")
            assert "This is only a trial" in text
            assert "No result:" not in console.get("/retention").text
            dated = [one["earliest_ms"] is not None for one in page["segments"]]
            is_policy_known = targets is filled.targets
            assert dated == [is_policy_known and one["kind"] != "active" for one in page["segments"]]


def test_audit_with_filters(console: RunningConsole, filled: Store) -> None:
    """Administrative calls are listed, the newest first, by subject, text and result, and before a line."""
    count = 20  # a line of the log each, and the logs of this store are not read
    with reput_client.connect(**filled.targets, token=find_local_token(())) as client:
        for at in range(count):
            client.topics.create(f"audited-{at}", read_queue_count=1, write_queue_count=1)
            client.topics.delete(f"audited-{at}")
    with reput_client.connect(**filled.targets) as client, pytest.raises(reput_client.ReputError):
        client.topics.delete("orders")
    page = console.json("/audit.json")
    assert page["gaps"] == []
    times = [row["time_ms"] for row in page["rows"]]
    assert times == sorted(times, reverse=True)
    (refusal,) = console.json("/audit.json?failed=1&text=deletetopic")["rows"]
    assert refusal["event"] == "refusal"
    rows = console.json("/audit.json?service=commitlog&text=AUDITED-")["rows"]
    older = console.json(f"/audit.json?service=commitlog&text=AUDITED-&before={quote(rows[4]['key'])}")["rows"]
    assert older == rows[5:]
    assert len({row["key"] for row in rows}) == len(rows)
    assert sum("DeleteTopic" in row["method"] for row in rows) == count
    assert {row["service"] for row in rows} == {"commitlog"}
    assert console.json("/audit.json?subject=nobody")["rows"] == []
    assert "No line in the memory" in console.get("/audit?subject=nobody").text
    for hostile in ("before=%00", "before=~~~", "service=nope", "text=%25", "subject=" + "x" * 1_900):
        assert console.get(f"/audit?{hostile}").status == 200, hostile


def test_connections_and_members(console: RunningConsole, filled: Store) -> None:
    """An open connection is shown with its client, and as a member of the group that it receives for."""
    with (
        reput_client.connect(**filled.targets) as client,
        client.share_consumer("payments", group="billing") as consumer,
    ):
        consumer.receive(1, 1)
        page = console.json("/connections.json?group=billing")
        assert page["gaps"] == []
        assert {"delivery"} <= {row["service"] for row in page["rows"]} <= {"delivery", "indexer"}  # Delivery pulls
        (member,) = console.json("/groups/billing.json")["members"]
        assert member["service"] == "delivery"
        assert member["peer"] in [row["peer"] for row in page["rows"]]
        assert member["peer"] in console.get("/groups/billing").text
        assert console.json(f"/connections.json?text={quote(member['peer'])}")["rows"]
    everything = console.json("/connections.json")
    assert {row["service"] for row in everything["rows"]} == {"commitlog", "indexer", "janitor", "delivery"}
    assert [one["connection_count"] > 0 for one in everything["counts"]] == [True] * 4
    for cursor in ("9.9", "x", "0.-1", "0." + "9" * 30, "1"):
        assert console.get(f"/connections?after={cursor}").status == 200, cursor


def test_callers_need_the_right(filled: Store) -> None:
    """With a client's token pages name the missing right, a group is complete, and refusals do not fill the audit."""
    with console_of(filled.targets, "--store-timeout-ms", "20000") as plain:
        for path in ("/audit", "/connections"):
            assert "lacks the right" in plain.get(path).text
            assert plain.json(f"{path}.json")["rows"] == []
        group = plain.json("/groups/billing.json")
        assert (group["gaps"], len(group["member_gaps"])) == ([], 1)
        counted = filled.json("audit", "list", "--service", "delivery")
        for _ in range(5):
            plain.get("/groups/billing")
        assert len(filled.json("audit", "list", "--service", "delivery")) == len(counted)


def test_lag_and_rates_over_time(console: RunningConsole, filled: Store) -> None:
    """Samples of both kinds of groups and of topics become charts; an unknown span is the shortest."""

    def charts(path: str) -> Any:
        return console.json(path)["history"]["charts"]

    def is_sampled(group: Any) -> bool:
        found = group["history"]["charts"]
        return found["bytes"]["last"] is not None and found["messages"]["last"] == group["row"]["lag"]["messages"]

    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        producer.send("payments", b"more").result()
        for name in ("readers", "billing"):
            found = eventually(lambda name=name: console.json(f"/groups/{name}.json"), is_sampled)["history"]["charts"]
            assert found["bytes"]["last"] > 0
            assert found["seconds"]["last"] > 0
        eventually(
            lambda: (producer.send("payments", b"x").result(), charts("/topics/payments.json"))[1],
            lambda one: one["in_per_s"]["most"] > 0,
        )
    page = console.get("/groups/readers?span=24h").text
    assert "<polyline" in page
    assert console.json("/groups/readers.json?span=%3Cb%3E")["history"]["span"] == "15m"
    with console_of(filled.targets, "--history-count-max", "0") as forgetful:
        assert "remembers nothing" in forgetful.get("/groups/readers").text


def test_an_unknown_rate_is_not_zero(console: RunningConsole, filled: Store) -> None:
    """A topic that no group reads has arrivals, and no rate of messages that went out, until a group has a position."""

    def charts() -> Any:
        return console.json("/topics/lonely.json")["history"]["charts"]

    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        client.topics.create("lonely", read_queue_count=1, write_queue_count=1)
        client.query.wait_indexed(producer.send("lonely", b"x").result())
        found = eventually(charts, lambda one: one["in_per_s"]["last"] is not None)
        assert found["out_per_s"]["last"] is None
        client.groups.commit("of-lonely", [reput_client.ConsumerOffset("lonely", 0, 0)])
        assert eventually(charts, lambda one: one["out_per_s"]["last"] is not None)["out_per_s"]["last"] == 0


def test_a_mask_is_no_oracle(filled: Store) -> None:
    """Values of masked fields are on no page, and no search, condition or tail tells them."""
    with console_of(filled.targets, "--masked-fields", "customer,price,KEYS") as console:
        (row,) = console.json("/topics/orders.json")["newest"][:1]
        page = console.json(f"/messages/{row['id']}.json")
        assert '"customer": "•••"' in page["body"]["shown"]
        for path in (f"/messages/{row['id']}", "/topics/orders", "/dead-letters/billing", "/delayed", "/?q=-1h"):
            text = console.get(path).text
            assert not re.search(r"\bc-\d+\b|order-\d|reminder-\d", text), path
        assert console.get(f"/messages/{row['id']}/body").status == 404
        for key in ("order-3", "no-such-key"):
            found = console.get(f"/find.json?q={key}")
            assert (found.status, found.json["messages"]) == (503, [])
        (one,) = console.json(f"/find.json?q={row['unique_id']}&topic=orders")["messages"]
        assert one["id"] == row["id"]
        for condition in ("price%20%3D%2010", "price%20IS%20NULL", "KEYS%20CONTAINS%20'order-3'", "price%20%3D%20("):
            assert "error" in console.get(f"/topics/orders/newer?cursor=0.0&where={condition}").json, condition
            assert console.get(f"/topics/orders/tail?cursor=0.0&where={condition}").status == 400, condition
            letters = console.json(f"/dead-letters/billing.json?where={condition}")
            assert (letters["rows"], bool(letters["refusal"])) == ([], True), condition
        assert console.json("/delayed.json?key=reminder-9")["refusal"]
        assert console.json("/dead-letters/billing.json?where=region%20%3D%20'us'")["rows"]
