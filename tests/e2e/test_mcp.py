# SPDX-License-Identifier: Apache-2.0
"""`reput mcp`: each tool by a client of the protocol against a real store, hostile arguments, sizes, outages."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reput_client
from mcp import MCPError
from pytest_reput import MemoryReput
from reput_client import NewMessage, Options

from libs.moments import time_text
from services.console.ask import find
from services.console.ask.store import Store as Asked
from services.console.mcp.arguments import checked
from services.console.mcp.tools.catalogue import TOOLS
from services.console.pages.mask import Mask
from tests.console.filling import DELAYED_COUNT, HOSTILE, KEY, LONG_NAME, TRANSACTION_COUNT, fill
from tests.support.mcp_session import REPOSITORY, ask, bare_client, session_of
from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, Store, environment, store

pytestmark = pytest.mark.e2e

LINE_BYTES_MAX = 100_000
DELIVERY = ("--delivery", "--delivery-port", "0")
LARGE_SEGMENTS = {"REPUT_COMMITLOG_SEGMENT_SIZE_BYTES": str(16 << 20)}
SQL = "x';DROP/**/TABLE/**/messages;--"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("mcp"), *DELIVERY) as running:
        with reput_client.connect(**running.targets) as client:
            fill(client)
        yield running


async def test_messages_are_found_shown_and_followed(filled: Store, tmp_path: Path) -> None:
    """Find by key, id and time; the body in each form; the trail leads to dead letters and the states of groups."""
    async with session_of(filled, tmp_path / "log") as session:
        found = await ask(session, "find_by_key", key=KEY)
        assert [row["topic"] for row in found["messages"]] == ["orders", "payments"]
        assert (found["outcome"], found["searched_topic_count"] >= 4) == ("found", True)
        only = await ask(session, "find_by_key", key=KEY, topic="payments")
        assert [row["topic"] for row in only["messages"]] == ["payments"]

        first = found["messages"][0]
        for message_id in (first["id"], first["unique_id"]):
            shown = await ask(session, "get_message", id=message_id)
            assert json.loads(shown["body"]["text"])["id"] == 17
            assert {one["name"]: one["value"] for one in shown["properties"]}["price"] == "17"
            states = {one["group"]: one["state"] for one in shown["states"]}
            assert states["readers"] == ("read" if first["queue_offset"] < (20, 10)[first["queue_id"]] else "not_read")
        assert (await ask(session, "get_message", id=first["unique_id"], topic="orders"))["id"] == first["id"]
        (binary,) = (await ask(session, "find_by_key", key="binary"))["messages"]
        dump = (await ask(session, "get_message", id=binary["id"]))["body"]
        assert (dump["form"], dump["size_bytes"]) == ("hex", 256)
        assert dump["text"].startswith("00000000  00 01 02 03")

        timed = await ask(session, "find_by_time", start=binary["store_time"], topic="payments", limit=100)
        assert binary["id"] in {row["id"] for row in timed["messages"]}
        assert all(row["store_time"] >= binary["store_time"] for row in timed["messages"])

        buried = (await ask(session, "dead_letters", group="billing"))["letters"]
        letter = next(one["row"] for one in buried if one["origin_topic"] == "orders")
        trail = await ask(session, "message_trail", id=letter["unique_id"])
        assert {one["message"]["topic"] for one in trail["places"]} == {"orders", "%DLQ%billing"}
        states = {one["group"]: one["state"] for one in trail["places"][0]["states"]}
        assert states["billing"] == "dead_letter"
        waits = await ask(session, "find_by_key", key="reminder-7")
        assert [one["topic"] for one in waits["waiting"]] == ["reminders"]
        assert waits["outcome"] == "found"
        (half,) = (await ask(session, "find_by_key", key="half-0"))["waiting"]
        assert (half["topic"], half["waits_as"]) == ("orders", "transaction")
        assert (await ask(session, "message_trail", id=half["id"]))["waits_as"] == "transaction"
        assert (await ask(session, "find_by_key", key="nobody"))["outcome"] == "not_found"
        assert (await ask(session, "get_message", id="F" * 32))["outcome"] == "not_found"
        assert (await ask(session, "message_trail", id="7F000001" + "0" * 24))["outcome"] == "not_found"


async def test_topics_groups_and_the_store(filled: Store, tmp_path: Path) -> None:
    """Lists, lag and reasons of groups, messages at which they stand, reasons of segments, and services."""
    async with session_of(filled, tmp_path / "log") as session:
        listed = await ask(session, "list_topics")
        assert {"orders", "payments", "hostile", LONG_NAME} <= {row["name"] for row in listed["rows"]}
        assert [row["name"] for row in (await ask(session, "list_topics", name_part="PAY"))["rows"]] == ["payments"]
        topic = await ask(session, "get_topic", topic="orders")
        assert sum(one["max_queue_offset"] for one in topic["queues"]) == topic["topic"]["message_count"] >= 200
        assert {"billing", "readers"} <= {one["name"] for one in topic["groups"]}
        assert (await ask(session, "get_topic", topic="nothing"))["outcome"] == "not_found"

        groups = await ask(session, "list_groups")
        assert {"billing", "paused", "readers"} <= {row["name"] for row in groups["rows"]}
        readers = await ask(session, "get_group", group="readers")
        assert readers["group"]["lag"]["messages"] >= 170
        offsets = {one["message"]["queue_id"]: one["message"]["queue_offset"] for one in readers["stands_at"]}
        assert offsets == {0: 20, 1: 10}
        billing = await ask(session, "get_group", group="billing")
        assert billing["policy"]["attempts_max"] == 1
        assert (await ask(session, "get_group", group="paused"))["policy"]["is_paused"] is True
        assert (await ask(session, "get_group", group="nothing"))["outcome"] == "not_found"

        kept = await ask(session, "why_kept")
        assert kept["segments"][-1]["reason"] == "ACTIVE"
        assert kept["outcome"] == "found"
        first = kept["segments"][0]
        within = await ask(session, "why_kept", physical_offset=first["size_bytes"] - 1)
        assert [one["base_physical_offset"] for one in within["segments"]] == [0]
        assert (await ask(session, "why_kept", physical_offset=2**62))["outcome"] == "not_found"
        status = await ask(session, "store_status")
        assert [one["name"] for one in status["services"]] == ["CommitLog", "Indexer", "Janitor", "Delivery"]
        assert status["outcome"] == "found"

        delayed = await ask(session, "list_delayed")
        rest = await ask(session, "list_delayed", next_token=delayed["next_token"])
        assert len(delayed["rows"]) + len(rest["rows"]) == DELAYED_COUNT + 1
        assert len((await ask(session, "list_transactions"))["rows"]) == TRANSACTION_COUNT
        called = {"find_by_key", "find_by_time", "get_message", "message_trail", "dead_letters"}
        called |= {"list_topics", "get_topic", "list_groups", "get_group", "why_kept", "store_status"}
        assert {one.name for one in (await session.list_tools()).tools} == called | {
            "list_delayed",
            "list_transactions",
        }


async def test_hostile_arguments_are_refused(filled: Store, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """What is no argument is refused in words, what is one is looked for, and the server goes on without a fault."""
    values: tuple[Any, ...] = (
        "x" * 2_000_000, "\x00", "a\x1b[31m", "\u202e", "../../etc/passwd", "x'; DROP TABLE m; --", -1, 2**70, 1.5,
        True, [], {}, [["a"] * 100_000], {"$ne": ""},
    )  # fmt: skip
    async with session_of(filled, tmp_path / "log") as session:
        for name, tool in TOOLS.items():
            with subtests.test(name):
                for argument in tool.arguments.__struct_fields__:
                    for value in values:
                        result = await session.call_tool(
                            name, {"key": "k", "id": "k", "start": "-1h"} | {argument: value}
                        )
                        assert result.is_error, (argument, value)
                        assert result.content[0].type == "text"
                        assert result.content[0].text.startswith("BAD_ARGUMENT: ")
                        assert len(result.content[0].text) < 600
        found = await session.call_tool("find_by_time", {"start": "yesterday", "end": "-2 days"})
        assert "end is '-2 days': it must be later than start" in found.content[0].text  # type: ignore[union-attr]
        found = await session.call_tool("find_by_time", {"start": "soon"})
        assert "start is 'soon'" in found.content[0].text  # type: ignore[union-attr]
        found = await session.call_tool("list_delayed", {"next_token": "nonsense"})
        assert found.is_error
        assert (await ask(session, "find_by_key", key=SQL))["outcome"] == "not_found"
        assert (await ask(session, "message_trail", id=SQL))["outcome"] == "not_found"
        hostile = HOSTILE.replace(" ", "_")
        assert (await session.call_tool("find_by_key", {"key": hostile})).is_error
        assert (await session.call_tool("find_by_key", {"key": KEY, "next_token": "no-topic"})).is_error
        (row,) = (await ask(session, "find_by_key", key="hostile-key", topic="hostile"))["messages"]
        assert hostile in row["keys"]
        with pytest.raises(MCPError, match="tools are find_by_key"):
            await session.call_tool("delete_topic", {"topic": "orders"})
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_bodies_are_hidden_as_on_the_console(filled: Store, tmp_path: Path) -> None:
    """--hide-bodies and --masked-fields hide bodies and values, and refuse searches by what is masked."""
    async with session_of(filled, tmp_path / "log", "--hide-bodies") as session:
        (first, *_) = (await ask(session, "find_by_key", key=KEY))["messages"]
        assert "preview" not in first
        body = (await ask(session, "get_message", id=first["id"]))["body"]
        assert (body["is_hidden"], body.get("text"), body["size_bytes"] > 0) == (True, None, True)
    flags = ("--masked-fields", "customer,KEYS,price")
    async with session_of(filled, tmp_path / "log", *flags) as session:
        (row,) = (await ask(session, "find_by_key", key=first["unique_id"]))["messages"]
        assert "keys" not in row
        shown = json.dumps(await ask(session, "get_message", id=row["id"]))
        assert "c-0" not in shown
        assert "order-17" not in shown
        assert "customer" in shown
        refused = await ask(session, "find_by_key", key=KEY)
        assert refused["outcome"] == "could_not_look"
        assert "mask KEYS" in refused["could_not_look"][0]["reason"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with thousands of messages under one key, large bodies of all kinds, and many names."""
    with store(tmp_path_factory.mktemp("large"), *DELIVERY, extra=LARGE_SEGMENTS) as running:
        with reput_client.connect(**running.targets) as client, client.producer() as producer:
            for at in range(300):
                client.topics.create(f"{'n' * 100}-{at}", read_queue_count=1, write_queue_count=1)
            client.topics.create("many", read_queue_count=4, write_queue_count=4)
            for at in range(5_000):
                producer.send_message(NewMessage("many", f"{at} ".encode() * 60, keys=("all", "k" * 400, f"n-{at}")))
            crowded = NewMessage("many", b"x", keys=("crowded", *(f"{at}" for at in range(5_000))), tag="t" * 3_000)
            producer.send_message(crowded)
            for name, body in BODIES.items():
                last = producer.send_message(
                    NewMessage("many", body, keys=name, properties={f"p{i}": "v" * 300 for i in range(80)})
                )
            client.query.wait_indexed(last.result())
        yield running


BODIES = {
    "text": b"0123456789abcdef" * 65_536,
    "wide": "語".encode() * 340_000,
    "control": b"\x07" * 1_000_000,
    "binary": bytes(range(256)) * 4_000,
    "json": json.dumps({"rows": [{"quoted": '"\\' * 20}] * 4_000}).encode(),
    "emoji": "😀".encode() * 250_000,
}


def test_answers_are_below_100_kb_and_go_on(large: Store, subtests: pytest.Subtests) -> None:
    """Each line of each tool is below 100,000 bytes, and what was left off can be read, until nothing is left."""
    with bare_client(large) as client:

        def get(tool: str, **arguments: Any) -> Any:
            result, size_bytes = client.call(tool, **arguments)
            assert size_bytes < LINE_BYTES_MAX, (tool, arguments, size_bytes)
            assert not result.get("isError"), result
            return json.loads(result["content"][0]["text"])

        for name, body in BODIES.items():
            with subtests.test(f"a body: {name}"):
                (row,) = get("find_by_key", key=name)["messages"]
                start, text, steps = 0, "", 0
                while True:
                    found = get(
                        "get_message", id=row["id"], form="text" if name != "binary" else "hex", body_start=start
                    )
                    part = found["body"]["text"]
                    text, steps = text + part, steps + 1
                    if not any("body_start=" in note for note in found.get("left_off", ())) or steps == 3:
                        break
                    start = int(found["left_off"][0].rpartition("=")[2])
                assert steps == 3
                if name != "binary":
                    assert body.decode().startswith(text)
                    assert start < len(text)
                else:
                    assert f"{start:08x}  " in text
        with subtests.test("thousands of keys"):
            (row,) = get("find_by_key", key="crowded")["messages"]
            assert (row["key_count"], row["keys"][:2]) == (5_001, ["crowded", "0"])
            assert get("get_message", id=row["id"])["message"]["key_count"] == 5_001
        with subtests.test("a key of thousands"):
            seen, rest = list[str](), dict[str, str]()
            while True:
                found = get("find_by_key", key="all", limit=100, **{"topic": "many", **rest})
                seen += [row["id"] for row in found["messages"]]
                notes = [note for note in found.get("left_off", ()) if note.startswith("older messages")]
                if not notes or len(seen) > 400:
                    break
                rest = dict(part.split("=") for part in notes[0].partition(": ")[2].split(", "))
            assert len(set(seen)) == len(seen) > 400
        with subtests.test("a time of thousands"):
            times, rest = list[str](), {"start": "-1h"}
            while len(times) < 400:
                found = get("find_by_time", topic="many", limit=100, **rest)
                times += [row["id"] for row in found["messages"]]
                (note,) = [one for one in found["left_off"] if one.startswith("later messages")]
                rest = dict(part.split("=") for part in note.partition(": ")[2].split(", "))
                rest["behind"] = int(rest["behind"])
            assert len(set(times)) == len(times)
        with subtests.test("lists"):
            pages = [get("list_topics", page=number) for number in range(1, 5)]
            assert len({row["name"] for page in pages for row in page["rows"]}) > 300
            assert pages[0]["left_off"]
            get("get_topic", topic="many")
            get("find_by_key", key="k" * 400)
            get("find_by_time", start=time_text(1_700_000_000_000))
            get("message_trail", id=row["unique_id"])


def test_only_the_protocol_is_on_standard_output(filled: Store) -> None:
    """Lines that are no messages get an error or nothing, requests go on, and the server ends with its input."""
    with bare_client(filled) as client:
        client.write("nonsense")
        client.write("[" * 50_000)
        client.write(json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/delete", "params": {}}))
        answer, _ = client.request("tools/list", {})
        assert len(answer["result"]["tools"]) == len(TOOLS)
        result, _ = client.call("store_status")
        assert json.loads(result["content"][0]["text"])["outcome"] == "found"


async def test_topics_are_searched_in_parts(reput: MemoryReput, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends before the last topic never says "not found", and goes on where it ended."""
    monkeypatch.setattr(find, "TOPICS_SEARCHED_MAX", 2)
    client, names = reput.client(), ("a", "b", "c", "d", "e")
    with client.producer() as producer:
        last = [producer.send(name, b"x", keys="all" if name != "e" else "last").result() for name in names][-1]
    client.query.wait_indexed(last)
    asked = Asked(Options(**reput.targets), {**reput.targets, "gateway": ""}, Mask())

    async def get(**arguments: str) -> Any:
        tool = TOOLS["find_by_key"]
        return json.loads((await tool.run(asked, checked(tool.arguments, arguments))).text())

    first = await get(key="all")
    assert [row["topic"] for row in first["messages"]] == ["a", "b"]
    assert (first["outcome"], first["could_not_look"][0]["reason"]) == ("partial", "go on with after_topic=b")
    assert (await get(key="last"))["outcome"] == "could_not_look"
    assert (await get(key="last", after_topic="d"))["outcome"] == "found"
    assert (await get(key="nothing", after_topic="d"))["outcome"] == "not_found"
    await asked.close()


async def test_a_store_without_delivery(tmp_path: Path) -> None:
    """With --no-delivery nothing is missing that the store does not have."""
    with store(tmp_path / "store") as running:
        with reput_client.connect(**running.targets) as client, client.producer() as producer:
            client.query.wait_indexed(producer.send_message(NewMessage("orders", b"x", keys="order-1")).result())
        async with session_of(running, tmp_path / "log", "--no-delivery") as session:
            assert (await ask(session, "find_by_key", key="order-1"))["outcome"] == "found"
            for tool, arguments in (
                ("find_by_key", {"key": "order-2"}), ("get_group", {"group": "billing"}), ("list_groups", {}),
                ("dead_letters", {"group": "billing"}), ("list_delayed", {}), ("list_transactions", {}),
            ):  # fmt: skip
                assert (await ask(session, tool, **arguments))["outcome"] == "not_found", tool
            assert len((await ask(session, "store_status"))["services"]) == 3


async def test_rights_are_those_of_the_token(tmp_path: Path) -> None:
    """A client's token is enough but for reasons of segments and members, and the answers name the missing right."""
    for role in ("client", "operator", "stranger"):
        (tmp_path / role).write_text(f"{role}-token\n")
        (tmp_path / role).chmod(0o600)
    lines = f'token_file = "{tmp_path / "client"}"\noperator_token_file = "{tmp_path / "operator"}"\n'
    config = tmp_path / "reput.toml"
    config.write_text("".join(f"[{service}]\n{lines}" for service in ("commitlog", "indexer", "janitor", "delivery")))
    with store(tmp_path / "store", "--config", str(config), *DELIVERY) as guarded:
        with reput_client.connect(**guarded.targets, token="client-token") as client:
            fill(client, count=20)
        before = ("--token-file", str(tmp_path / "client"))
        async with session_of(guarded, tmp_path / "log", before=before) as session:
            for tool, arguments in (
                ("find_by_key", {"key": KEY}), ("find_by_time", {"start": "-1h"}), ("list_topics", {}),
                ("get_group", {"group": "billing"}), ("dead_letters", {"group": "billing"}), ("store_status", {}),
                ("list_delayed", {}), ("list_transactions", {}), ("get_topic", {"topic": "orders"}),
            ):  # fmt: skip
                assert (await ask(session, tool, **arguments))["outcome"] == "found", tool
            kept = await ask(session, "why_kept")
            assert kept["outcome"] == "partial"
            assert "--token-file" in kept["could_not_look"][0]["reason"]
            assert (await ask(session, "get_group", group="readers"))["members_not_known"]
        before = ("--token-file", str(tmp_path / "operator"))
        async with session_of(guarded, tmp_path / "log", before=before) as session:
            assert (await ask(session, "why_kept"))["outcome"] == "found"
        before = ("--token-file", str(tmp_path / "stranger"))
        async with session_of(guarded, tmp_path / "log", before=before) as session:
            assert (await ask(session, "find_by_key", key=KEY))["outcome"] == "could_not_look"


def test_the_example_of_the_page(filled: Store, tmp_path: Path) -> None:
    """The program of docs/mcp.md finds the message, with the addresses of this store."""
    (code,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/mcp.md").read_text(), re.DOTALL)
    given = 'command="reput", args=["mcp"]'
    assert given in code
    own = f"command={REPUT[0]!r}, args={[*REPUT[1:], 'mcp']!r}, env={environment(filled.client_environment())!r}"
    program = tmp_path / "program.py"
    program.write_text(code.replace(given, own))
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, cwd=REPOSITORY, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "found ['orders', 'payments']\n"), done.stderr


@pytest.mark.slow
async def test_a_service_that_is_away_gives_partial_answers(tmp_path: Path) -> None:
    """Without Delivery, "could not look" is said where it would answer; without the Indexer it is no "not found"."""
    with store(tmp_path / "store", *DELIVERY) as running:
        with reput_client.connect(**running.targets) as client, client.producer() as producer:
            client.query.wait_indexed(producer.send("orders", b"x", keys="order-1").result())
        before = ("--timeout", "2")
        async with session_of(running, tmp_path / "log", before=before) as session:
            assert (await ask(session, "find_by_key", key="order-1"))["outcome"] == "found"
            os.kill(running.child("delivery"), signal.SIGSTOP)
            try:
                partial = await ask(session, "find_by_key", key="order-1")
                assert (partial["outcome"], len(partial["messages"])) == ("partial", 1)
                assert "delayed messages" in partial["could_not_look"][0]["subject"]
                nothing = await ask(session, "find_by_key", key="order-2")
                assert nothing["outcome"] == "could_not_look"
                assert (await ask(session, "get_group", group="billing"))["outcome"] == "could_not_look"
                assert (await ask(session, "dead_letters", group="billing"))["outcome"] == "could_not_look"
                status = await ask(session, "store_status")
                assert {one["name"]: one["health"] for one in status["services"]}["Delivery"] == "away"
                assert status["outcome"] == "partial"
            finally:
                os.kill(running.child("delivery"), signal.SIGCONT)
            os.kill(running.child("indexer"), signal.SIGSTOP)
            try:
                for tool, arguments in (
                    ("find_by_key", {"key": "order-1"}), ("find_by_time", {"start": "-1h"}),
                    ("get_message", {"id": "F" * 32}), ("message_trail", {"id": "order-1"}),
                ):  # fmt: skip
                    found = await ask(session, tool, **arguments)
                    assert found["outcome"] == "could_not_look", (tool, found)
                    assert found["could_not_look"]
            finally:
                os.kill(running.child("indexer"), signal.SIGCONT)


async def test_a_service_that_is_killed_while_it_is_asked(tmp_path: Path) -> None:
    """Answers under way are found or could not look, never "not found"; then the address that is gone is named."""
    killed = tmp_path / "killed"
    with store(killed, *DELIVERY) as running:
        with reput_client.connect(**running.targets) as client, client.producer() as producer:
            client.query.wait_indexed(producer.send_message(NewMessage("orders", b"x", keys="order-1")).result())
        async with session_of(running, tmp_path / "log", before=("--timeout", "2")) as session:
            under_way = [asyncio.create_task(ask(session, "find_by_key", key="order-1")) for _ in range(40)]
            await under_way[10]
            os.kill(running.child("indexer"), signal.SIGKILL)
            outcomes = [(await one)["outcome"] for one in under_way]
            assert set(outcomes) <= {"found", "partial", "could_not_look"}
            assert outcomes[0] == "found"


async def test_a_store_that_ends_while_it_is_asked(tmp_path: Path) -> None:
    """A server whose store ends says so, names the address, and goes on."""
    with store(tmp_path / "store", *DELIVERY) as running:
        async with session_of(running, tmp_path / "log", before=("--timeout", "2")) as session:
            assert (await ask(session, "list_topics"))["outcome"] in ("found", "not_found")
            running.process.send_signal(signal.SIGINT)
            running.process.wait(timeout=LIMIT_S)
            gone = await ask(session, "list_topics")
            assert gone["outcome"] == "could_not_look"
            assert running.targets["commitlog"] in gone["could_not_look"][0]["reason"]
            assert (await ask(session, "store_status"))["outcome"] == "could_not_look"
