# SPDX-License-Identifier: Apache-2.0
"""Find over many topics and among waiting messages, and looks into a topic, against a real store."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import reput_client
from pytest_reput import MemoryReput
from reput_client import ConsumerOffset, NewMessage, Options

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from services.console.ask.find import TOPICS_SEARCHED_MAX, find
from services.console.ask.store import Store as Asked
from services.console.pages.mask import Mask
from tests.console.filling import fill
from tests.support.console import RunningConsole, console_of
from tests.support.patience import eventually
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e

TOPIC_COUNT = TOPICS_SEARCHED_MAX + 40
"""Topics with a message each; as many have none."""
KEY_COUNT = 575


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("console"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client)
        yield running


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    with console_of(filled.targets, "--store-timeout-ms", "60000") as running:
        yield running


def test_a_search_in_parts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With more topics than a search has, a page names the rest, and its link goes on until all are searched."""
    with store(tmp_path_factory.mktemp("many")) as running, reput_client.connect(**running.targets) as client:
        with ThreadPoolExecutor(16) as pool:
            for kind in ("empty", "full"):
                list(pool.map(lambda name: client.topics.create(name, read_queue_count=1, write_queue_count=1),
                              (f"{kind}-{at:04d}" for at in range(TOPIC_COUNT))))  # fmt: skip
        with client.producer() as producer:
            outcomes = [
                producer.send_message(NewMessage(f"full-{at:04d}", b"x", keys=f"key-{at}")) for at in range(TOPIC_COUNT)
            ]
            last = [outcome.result() for outcome in outcomes][-1]
        client.query.wait_indexed(last)
        (stored,) = client.query.by_key(f"full-{TOPIC_COUNT - 1:04d}", f"key-{TOPIC_COUNT - 1}")
        with console_of(running.targets, "--store-timeout-ms", "60000") as console:
            found = console.json(f"/find.json?q=key-{TOPIC_COUNT - 1}")
            assert (found["outcome"], found["gaps"], found["messages"]) == ("in_parts", [], [])
            assert found["topic_count"] == 2 * TOPIC_COUNT
            assert f"{TOPIC_COUNT - TOPICS_SEARCHED_MAX} are left" in found["verdict"]
            page = console.get(f"/?q=key-{TOPIC_COUNT - 1}")
            link = re.search(r'<a href="([^"]+)" rel="next">Go on', page.text)
            assert (page.status, link is not None) == (200, True)
            assert link is not None
            last_page = console.json("/find.json" + link[1].replace("&amp;", "&")[1:])
            assert [row["topic"] for row in last_page["messages"]] == [stored.topic]
            assert (last_page["looked_topic_count"], last_page["next_after"]) == (2 * TOPIC_COUNT, "")
            topics, after = set(), ""
            while True:
                part = console.json(f"/find.json?q={stored.store_time_ms - 30_000}&after={after}")
                assert part["gaps"] == []
                topics |= {row["topic"] for row in part["near"]}
                if not (after := part["next_after"]):
                    break
            assert topics  # the topics that the parts show first
            nothing = console.json("/find.json?q=2020-01-01T00:00Z")
            assert (nothing["outcome"], nothing["gaps"]) == ("in_parts", [])
            end = console.json(f"/find.json?q=2020-01-01T00:00Z&after={nothing['next_after']}")
            assert (end["outcome"], end["looked_topic_count"]) == ("not_found", 2 * TOPIC_COUNT)


def test_keys_of_waiting_messages(console: RunningConsole, filled: Store) -> None:
    """A key of a delayed message, of a delay level and of an open transaction is found, until the wait is over."""
    with reput_client.connect(**filled.targets) as client:
        with client.producer() as producer:
            level = NewMessage("orders", b"later", keys="of-a-level", properties={"DELAY": "18"})
            client.query.wait_indexed(producer.send_message(level).result())
        for key, topic, waits_as in (
            ("reminder-7", "reminders", "delayed"),
            ("of-a-level", "orders", "delayed"),
            ("half-1", "orders", "transaction"),
        ):  # fmt: skip
            (row,) = console.json(f"/find.json?q={key}")["messages"]
            assert (row["topic"], row["waits_as"], row["keys"]) == (topic, waits_as, [key])
            assert (row["due_ms"] is not None) == (waits_as == "delayed")
            assert console.get(f"/messages/{row['id']}").status == 200
            assert console.json(f"/find.json?q={key}&topic=payments")["messages"] == []
            assert ("delayed until" in console.get(f"/?q={key}").text) == (waits_as == "delayed")
        assert "open transaction" in console.get("/?q=half-1").text
        (opened,) = [one for one in client.transactions.list() if one.offset_message_id == row["id"]]
        assert [one["id"] for one in console.json(f"/find.json?q={opened.id}")["messages"]] == [row["id"]]
        client.transactions.rollback(opened.id)
        ended = console.json("/find.json?q=half-1")
        assert ended["messages"] == []
        assert "no delayed message and no open transaction" in ended["verdict"]
    with console_of(filled.targets, "--masked-fields", "KEYS", "--store-timeout-ms", "60000") as masked:
        assert masked.json(f"/find.json?q={row['unique_id']}&topic=reminders")["messages"] == []
        for further in ("", "&topic=orders&older=x"):
            assert masked.get(f"/find.json?q=reminder-7{further}").json["messages"] == []


def test_waiting_messages_without_delivery(tmp_path: Path) -> None:
    """A store without Delivery keeps messages that wait: a search finds them, and names its gaps."""
    with store(tmp_path) as running, reput_client.connect(**running.targets) as client:
        with client.producer() as producer:
            producer.send_message(NewMessage("orders", b"timed", keys="late-1", delay_s=86_400))
            level = NewMessage("orders", b"level", keys="late-2", properties={"DELAY": "18"})
            last = producer.send_message(level).result()
        client.query.wait_indexed(last)
        with console_of(running.targets, "--store-timeout-ms", "60000") as console:
            for key, topic in (("late-1", TIMER_TOPIC), ("late-2", SCHEDULE_TOPIC)):
                for narrowed in ("", "&topic=orders", f"&topic={topic}"):
                    found = console.json(f"/find.json?q={key}{narrowed}")
                    ((row,), (gap,)) = found["messages"], found["gaps"]
                    assert (row["topic"], row["keys"], found["outcome"]) == (topic, [key], "found")
                    assert "no Delivery to ask" in gap["reason"]
                assert console.json(f"/find.json?q={key}&topic=payments")["messages"] == []
            nothing = console.json("/find.json?q=late-3")
            assert (nothing["outcome"], nothing["gaps"]) == ("not_found", [])
            assert "no delayed message and no open transaction" in nothing["verdict"]


def test_a_console_without_delivery(filled: Store) -> None:
    """A console that knows no Delivery finds half messages and delayed messages where they are stored."""
    targets = {name: target for name, target in filled.targets.items() if name != "delivery"}
    with console_of(targets, "--store-timeout-ms", "60000") as console:
        for key, topic in (("half-0", HALF_TOPIC), ("reminder-8", TIMER_TOPIC)):
            found = console.json(f"/find.json?q={key}")
            ((row,), (gap,)) = found["messages"], found["gaps"]
            assert (row["topic"], gap["subject"]) == (topic, "whether these messages still wait")


def test_a_transaction_that_was_given_up(tmp_path: Path) -> None:
    """The message of a transaction whose producers were asked too often is found by its key."""
    often = {"REPUT_DELIVERY_TRANSACTION_CHECK_COUNT_MAX": "1", "REPUT_DELIVERY_TRANSACTION_CHECK_INTERVAL_MS": "100"}
    with store(tmp_path, "--delivery", "--delivery-port", "0", extra=often) as running:
        with reput_client.connect(**running.targets) as client:
            client.topics.create("orders")
            client.transactions.begin("orders", b"half", group="shop", keys="given-up", check_after_s=1)
        with console_of(running.targets, "--store-timeout-ms", "60000") as console:
            page = "/find.json?q=given-up"
            asyncio.run(eventually(lambda: "given-up transaction" in str(console.json(page)["messages"])))
            assert "given-up transaction" in console.get("/?q=given-up&topic=orders").text


def test_a_key_of_hundreds_is_read_to_its_end(tmp_path: Path) -> None:
    """Links lead through all messages of a key, many of them in a millisecond: none comes twice, and none is lost."""
    topics = [f"topic-{at}" for at in range(7)]
    with store(tmp_path) as running, reput_client.connect(**running.targets) as client:
        with client.producer() as producer:
            outcomes = [
                producer.send_message(NewMessage(topic, b"x", keys="popular"))
                for topic in topics for _ in range(KEY_COUNT if topic == topics[0] else 20 + (topic == topics[1]))
            ]  # fmt: skip
            sent = [outcome.result() for outcome in outcomes]
        client.query.wait_indexed(max(sent, key=lambda one: one.physical_offset))
        with console_of(running.targets, "--store-timeout-ms", "60000") as console:
            page = console.get("/?q=popular").text
            assert "The newest messages of each topic, oldest first" in page
            first = console.json("/find.json?q=popular")
            assert [(one["topic"], one["older"] != "") for one in first["more"]] == [
                (topics[0], True), (topics[1], True), (topics[5], False), (topics[6], False)
            ]  # fmt: skip
            assert "4 topics have more" in first["verdict"]
            seen = [row["id"] for row in first["messages"]]
            assert len(seen) == 100
            links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/\?q=popular&amp;topic=[^"]+)"', page)]
            assert len(links) == 4
            while links:
                part = console.json("/find.json" + links.pop()[1:])
                assert part["gaps"] == []
                assert part["messages"] == sorted(part["messages"], key=lambda row: row["store_time_ms"])
                seen += [row["id"] for row in part["messages"]]
                links += [f"/?q=popular&topic={one['topic']}&older={one['older']}" for one in part["more"]]
            assert len(seen) == len(set(seen)) == len(sent)
            assert set(seen) == {one.offset_message_id for one in sent}
            forged = console.get(f"/find.json?q=popular&topic={topics[0]}&older=x")
            assert (forged.status, forged.json["messages"]) == (503, [])


def test_an_empty_minute_leads_to_its_neighbours(console: RunningConsole, filled: Store) -> None:
    """A minute without messages has links to the message before and behind it, over all queues of its topics."""
    with reput_client.connect(**filled.targets) as client:
        times = {topic: [one.store_time_ms for one in client.query.by_time(topic)] for topic in ("orders", "payments")}
    first_ms, last_ms = min(times["orders"]), max(times["orders"])
    before = console.json(f"/find.json?q={first_ms - 600_000}&topic=orders")
    assert (before["earlier_ms"], before["later_ms"]) == (None, first_ms)
    behind = console.json("/find.json?q=%2B1h&topic=orders")
    assert (behind["earlier_ms"], behind["later_ms"], behind["is_ahead"]) == (last_ms, None, True)
    page = console.get(f"/?q={first_ms - 600_000}&topic=orders").text
    assert f"q={first_ms}&amp;topic=orders" in page
    assert f"/topics/orders?at={first_ms - 600_000}#look" in page
    everywhere = console.json("/find.json?q=2020-01-01T00:00Z")
    assert everywhere["earlier_ms"] is None
    assert everywhere["later_ms"] <= min(first_ms, *times["payments"])


async def test_an_empty_minute_between_messages(reput: MemoryReput) -> None:
    """Queues with messages before, behind and on both sides: the nearest of all are found, and a minute has its own."""
    client = reput.client()
    client.topics.create("orders", read_queue_count=3, write_queue_count=3)
    sent = {}
    with client.producer() as producer:
        for name, queue_id in (("first", 0), ("early", 1), ("late", 1), ("last", 2)):
            if name == "late":
                reput.advance(hours=2)
            reput.advance(minutes=1)
            sent[name] = producer.send("orders", b"x", queue_id=queue_id, properties={"name": name}).result()
        client.query.wait_indexed(sent["last"])
    times = {name: one.store_time_ms for name, one in sent.items()}
    asked = Asked(Options(**reput.targets), {**reput.targets, "gateway": ""}, Mask())
    try:
        between = await find(asked, str(times["early"] + 3_600_000), "orders", "UTC")
        assert (between.earlier_ms, between.later_ms) == (times["early"], times["late"])
        for name, time_ms in times.items():
            page = await find(asked, str(time_ms), "", "UTC")
            assert [row.store_time_ms for row in page.near] == [time_ms], name
    finally:
        await asked.close()


async def test_a_time_is_read_to_its_end(reput: MemoryReput) -> None:
    """Links lead through all messages of a minute in the order of the log, hundreds of them in the same millisecond."""
    client, topics = reput.client(), ("few", "many", "more")
    for topic in topics:
        client.topics.create(topic, read_queue_count=4, write_queue_count=4)
    with client.producer() as producer:
        first = producer.send("few", b"x").result()
        sent = [producer.send(topics[1 + at % 2], b"%d" % at) for at in range(700)]
        begun = [one.result() for one in sent]
        reput.advance(seconds=5)
        begun += [producer.send(topics[at % 3], b"late").result() for at in range(9)]
        client.query.wait_indexed(begun[-1])
    asked = Asked(Options(**reput.targets), {**reput.targets, "gateway": ""}, Mask())
    try:
        seen, text, behind = list[int](), str(first.store_time_ms), -1
        while text:
            page = await find(asked, text, "", "UTC", behind=behind)
            assert (page.outcome, page.gaps) == ("found", ())
            seen += [row.physical_offset for row in page.near]
            text, behind = page.next_moment, page.next_behind
        assert seen == sorted(one.physical_offset for one in (first, *begun))
        missing = await find(asked, "order-1", "fe", "UTC")
        assert (missing.topics, missing.status) == (("few",), 200)
        assert "There is no topic fe" in missing.verdict
    finally:
        await asked.close()


def test_a_delayed_page_leads_to_messages_of_levels(console: RunningConsole, filled: Store) -> None:
    """The list of delayed messages has none of delay levels: it says so, and leads to Find, which has them."""
    with reput_client.connect(**filled.targets) as client, client.producer() as producer:
        level = NewMessage("orders", b"later", keys="late-2", properties={"DELAY": "18"})
        client.query.wait_indexed(producer.send_message(level).result())
    page = console.get("/delayed?key=late-2").text
    assert 'Messages of delay levels are not searched by key here: <a href="/?q=late-2">Find</a>' in page
    assert len(console.json("/find.json?q=late-2")["messages"]) == 1


def test_transactions_have_their_message(console: RunningConsole) -> None:
    """A row has the key and the begin of the body, and a topic that the page links to is there."""
    rows = console.json("/transactions.json")["rows"]
    assert ("half-0", "half") in [(row["row"]["keys"][0], row["row"]["preview"]) for row in rows]
    for link in re.findall(r'href="(/topics/[^"]+)"', console.get("/transactions").text):
        assert console.get(link).status == 200, link


def test_looks_into_a_topic(console: RunningConsole) -> None:
    """A time shows the first messages of all queues in time, an offset shows messages of a queue, in parts."""
    page = console.json("/topics/orders.json")
    newest = page["newest"]
    assert [row["store_time_ms"] for row in newest] == sorted((row["store_time_ms"] for row in newest), reverse=True)
    messages, place = page["row"]["message_count"], "at=2020-01-01"
    seen = []
    while place:
        look = console.json(f"/topics/orders.json?{place}")["look"]
        seen += [(row["store_time_ms"], row["id"]) for row in look["rows"]]
        place = f"cursor={look['next_cursor']}" if look["next_cursor"] else ""
    assert len({row_id for _, row_id in seen}) == len(seen) == messages >= 200
    assert [time_ms for time_ms, _ in seen] == sorted(time_ms for time_ms, _ in seen)
    (middle_ms, _) = seen[len(seen) // 2]
    late = console.json(f"/topics/orders.json?at={middle_ms}")["look"]["rows"]
    assert (late[0]["store_time_ms"], len(late)) == (middle_ms, 20)
    offsets, offset = [], "90"
    while offset:
        look = console.json(f"/topics/orders.json?queue=1&offset={offset}")["look"]
        offsets += [row["queue_offset"] for row in look["rows"]]
        offset = look["next_offset"]
    (end,) = [queue["max_queue_offset"] for queue in page["queues"] if queue["queue_id"] == 1]
    assert offsets == list(range(90, end))
    assert "ends at offset" in console.json(f"/topics/orders.json?queue=1&offset={end}")["look"]["note"]
    assert "No message was stored" in console.json("/topics/orders.json?at=%2B1h")["look"]["note"]
    numbers = ("queue=x&offset=1", "queue=99&offset=1", "queue=1&offset=-1", "queue=1&offset=" + "9" * 40)
    others = ("at=soon", "at=-5", "queue=1", "offset=1", "queue=%D9%A3&offset=%00", "cursor=x", "cursor=" + "0.1," * 40)
    for wrong in (*numbers, *others):
        answer = console.get(f"/topics/orders.json?{wrong}")
        assert (answer.status, bool(answer.json["look"]["refusal"])) == (200, True), wrong


def test_names_of_the_store_itself_are_behind_a_switch(console: RunningConsole, filled: Store) -> None:
    """Groups and topics of the store and of RocketMQ are listed when they are asked for, and each has its page."""
    with reput_client.connect(**filled.targets) as client:
        client.groups.commit("CID_RMQ_SYS_TRANS", [ConsumerOffset("orders", 0, 1)])
    for path, name in (("groups", "CID_RMQ_SYS_TRANS"), ("topics", "RMQ_SYS_TRANS_HALF_TOPIC")):
        listed, with_system = (
            {row["name"] for row in console.json(f"/{path}.json{query}")["rows"]} for query in ("", "?system=1")
        )
        assert name not in listed
        assert with_system >= {*listed, name}
        assert console.get(f"/{path}/{name}").status == 200
        assert f"/{path}?name=&amp;system=1" in console.get(f"/{path}").text
    assert "CID_RMQ_SYS_TRANS" not in str(console.json("/find.json?q=CID_RMQ")["groups"])
    assert "CID_RMQ_SYS_TRANS" not in filled.run("groups", "list").output
