# SPDX-License-Identifier: Apache-2.0
"""Groups that stand still, and the state of each message at them, as the console shows them."""

import re
from collections.abc import Iterator

import pytest
import reput_client
from reput_client import NewMessage, SharePolicy

from libs.runtime.trust.tokens import local_token_path
from tests.support.console import RunningConsole, console_of
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e

MESSAGE_COUNT = 6
GROUP, TOPIC = "holders", "invoices"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with an ordered group: message 0 waits, 1 is held behind it, 2 in flight, 3 dead, 4 settled, 5 new."""
    with store(tmp_path_factory.mktemp("console"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            client.topics.create(TOPIC, read_queue_count=2, write_queue_count=2)
            with client.producer() as producer:
                for at in range(MESSAGE_COUNT):
                    key = "a" if at < 2 else f"k{at}"
                    message = NewMessage(TOPIC, b"%d" % at, keys=f"invoice-{at}", queue_id=0, sharding_key=key)
                    last = producer.send_message(message).result()
                last = producer.send_message(NewMessage(TOPIC, b"other", keys="other", queue_id=1)).result()
            client.query.wait_indexed(last)
            client.share_groups.set(GROUP, SharePolicy(is_ordered=True, attempts_max=3, invisible_s=3_600))
            client.share_groups.set("idle", SharePolicy())
            client.share_groups.set("nightly", SharePolicy(is_paused=True))
        yield running


@pytest.fixture(scope="module")
def member(filled: Store) -> Iterator[reput_client.ShareConsumer]:
    """A member with messages, whose connection stays open."""
    with (
        reput_client.connect(**filled.targets) as client,
        client.share_consumer(TOPIC, group=GROUP) as consumer,
        client.share_consumer(TOPIC, group="idle") as idle,
    ):
        idle.nack(*idle.receive(1, 30), delay_s=0)
        held = {}
        while not {"0", "2", "3", "4"} <= held.keys():
            held |= {one.message.body.decode(): one for one in consumer.receive(1, 30) if one.message.queue_id == 0}
        consumer.nack(held["0"], delay_s=3_000)
        consumer.bury(held["3"])
        consumer.ack(held["4"])
        yield consumer


@pytest.fixture
def console(filled: Store, member: object) -> Iterator[RunningConsole]:
    token = str(local_token_path())
    with console_of(filled.targets, "--store-timeout-ms", "60000", "--store-token-file", token) as running:
        yield running


def state_of(console: RunningConsole, key: str, group: str = GROUP) -> tuple[dict[str, object], str]:
    """Return the state of a message at a group, and its cell on the page."""
    (row,) = console.json(f"/find.json?q={key}&topic={TOPIC}")["messages"]
    (state,) = [one for one in console.json(f"/messages/{row['id']}.json")["states"] if one["group"] == group]
    cell = re.search(
        rf"<bdi>{group}</bdi></a></td>\s*<td[^>]*>(.*?)</td>", console.get(f"/messages/{row['id']}").text, re.DOTALL
    )
    assert cell is not None
    return state, " ".join(re.sub("<[^>]+>", "", cell[1]).split())


def test_each_state_of_a_message_is_exact(console: RunningConsole, subtests: pytest.Subtests) -> None:
    """In flight with its receiver and its times, waiting, held, dead, settled and new: each state by itself."""
    in_flight, text = state_of(console, "invoice-2")
    assert (in_flight["state"], in_flight["attempt"], in_flight["attempts_max"]) == ("in_flight", 1, 3)
    assert int(str(in_flight["until_ms"])) - int(str(in_flight["since_ms"])) == 3_600_000
    assert re.match(r"(ipv4:)?127\.0\.0\.1:\d+, reput-python", str(in_flight["receiver"])), in_flight
    assert re.search(r"^in flight, attempt 1 of 3: .* has it since \S+ \S+ UTC, until \S+ \S+ UTC", text)
    for key, state, words in (
        ("invoice-0", "waiting", "waits for its next attempt, after attempt 1 of 3: possible from"),
        ("invoice-1", "held", "held: offset 0 has the same ordering key and is not settled"),
        ("invoice-3", "dead_letter", "settled as a dead letter"),
        ("invoice-4", "settled", "settled"),
    ):
        with subtests.test(key):
            found, text = state_of(console, key)
            assert (found["state"], text[: len(words)]) == (state, words)


def test_a_group_names_who_holds_it_up(console: RunningConsole) -> None:
    """The page of the group has the reason of each queue, and the exact state of the message that blocks."""
    page = console.json(f"/groups/{GROUP}.json")
    (blocker,) = page["blockers"]
    assert (blocker["queue_offset"], blocker["state"]["state"]) == (0, "waiting")
    text = re.sub("<[^>]+>", "", console.get(f"/groups/{GROUP}").text)
    assert "now waits for its next attempt, after attempt 1 of 3: possible from" in " ".join(text.split())


def test_paused_and_idle_groups_say_why(console: RunningConsole) -> None:
    """A pause is a reason; a group without a position says that it reads no topic; a topic names its idle group."""
    assert [one["text"] for one in console.json("/groups/nightly.json")["row"]["reasons"]] == ["the group is paused"]
    assert "so it reads no topic" in console.get("/groups/nightly").text
    groups = {one["name"]: one for one in console.json(f"/topics/{TOPIC}.json")["groups"]}
    of_list = {one["name"]: one["reasons"] for one in console.json("/groups.json")["rows"]}
    assert groups["idle"]["reasons"] == of_list["idle"] != []


def test_without_an_operator_s_token_the_receiver_s_address_is_missing(filled: Store, member: object) -> None:
    """Addresses are for operators: the number of the connection is told, and why it is all."""
    with console_of(filled.targets, "--store-timeout-ms", "60000") as running:
        state, text = state_of(running, "invoice-2")
        assert (state["receiver"], state["state"]) == ("", "in_flight")
        assert f"connection {state['connection_number']} of Delivery (its address is not known: " in text
