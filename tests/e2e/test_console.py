# SPDX-License-Identifier: Apache-2.0
"""The console over HTTP: each page and its twin against a real store, outages, the gate, and the login."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client

from libs.runtime.trust.tokens import local_token_path
from tests.console.filling import HOSTILE, KEY, LARGE_BYTES, LONG_NAME, SCRIPT, fill
from tests.support.console import REPOSITORY, RunningConsole, console_of, in_path
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store
from tests.support.surroundings import free_port

pytestmark = pytest.mark.e2e

PAGES = (
    "/", "/find", f"/find?q={KEY}", "/find?q=-1h", "/topics", "/topics/orders", f"/topics/{in_path(LONG_NAME)}",
    "/topics/hostile", "/topics/%25DLQ%25billing", "/groups", "/groups/billing", "/groups/readers", "/groups/paused",
    "/dead-letters", "/dead-letters/billing", "/delayed", "/transactions", "/retention", "/retention?hours=0",
    "/connections", "/audit", "/store",
)  # fmt: skip
PAGE_BYTES_MAX = 100_000


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


def message_of(console: RunningConsole, key: str) -> str:
    return str(console.json(f"/find.json?q={key}")["messages"][0]["id"])


def test_each_page_and_its_twin(console: RunningConsole, subtests: pytest.Subtests) -> None:
    """Each page is complete HTML below 100 kB with its commands, and its twin is the same as JSON."""
    for path in (*PAGES, f"/messages/{message_of(console, 'order-3')}"):
        with subtests.test(path):
            page = console.get(path)
            assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert len(page.text.encode()) < PAGE_BYTES_MAX
            assert "not complete" not in page.text
            twin = re.search(r'<a href="([^"]+)">This page as JSON', page.text)
            assert twin is not None
            found = console.json(twin[1].replace("&amp;", "&"))
            assert found["gaps"] == []
            assert all(command.startswith("reput ") for command in found["commands"])


def test_find_a_key_in_all_topics(console: RunningConsole) -> None:
    """The trail of a key has the messages of all topics, oldest first, and says how many topics were searched."""
    found = console.json(f"/find.json?q={KEY}")
    assert [row["topic"] for row in found["messages"]] == ["orders", "payments"]
    assert found["outcome"] == "found"
    assert found["looked_topic_count"] >= 4
    letter = console.json("/find.json?q=order-0")
    assert {row["place"] for row in letter["messages"]} >= {"", "dead letter of billing"}
    only = console.json(f"/find.json?q={KEY}&topic=payments")
    assert [row["topic"] for row in only["messages"]] == ["payments"]


def test_find_by_id_time_and_name(console: RunningConsole) -> None:
    """A message id, a unique id, a time with the reader's zone, and a part of a name lead to their objects."""
    row = console.json("/find.json?q=order-5&topic=orders")["messages"][0]
    for text in (row["id"], row["id"].lower(), row["unique_id"]):
        assert row["id"] in [one["id"] for one in console.json(f"/find.json?q={text}")["messages"]]
    near = console.json(f"/find.json?q={row['store_time_ms']}&topic=orders")
    assert near["near"], near
    names = console.json("/find.json?q=ORD")
    assert names["topics"] == ["orders"]
    assert console.json("/find.json?q=bill")["groups"] == ["billing"]


def test_not_found_is_said_after_everything_was_searched(console: RunningConsole) -> None:
    """Missing objects are not found, with 404 for objects, and never a failure."""
    found = console.get("/find.json?q=no-such-key")
    assert (found.status, found.json["outcome"]) == (200, "not_found")
    for name in ("nope", "a%20b", "x" * 200):  # names of no topic and of no group of Delivery, too
        for path in (f"/topics/{name}", f"/groups/{name}", f"/dead-letters/{name}", f"/messages/{'0' * 32}"):
            for suffix in ("", ".json"):
                answer = console.get(path + suffix)
                assert (answer.status, "not complete" in answer.text) == (404, False), path
    for path in ("/messages/no-id", "/messages/no-id.json", "/messages/" + "F" * 31, "/messages/no-id/body"):
        answer = console.get(path)
        assert (answer.status, "not complete" in answer.text) == (404, False), path
    assert "no valid message id" in console.get("/messages/no-id").text
    assert console.get("/no/such/page").status == 404


def test_forms_of_a_body(console: RunningConsole) -> None:
    """A body is text, JSON or hexadecimal, inflated, cut on the page and whole when it is saved."""

    def body(key: str, form: str = "") -> dict[str, object]:
        found: dict[str, object] = console.json(f"/messages/{message_of(console, key)}.json?form={form}")["body"]
        return found

    order = body("order-3")
    assert (order["form"], order["forms"]) == ("json", ["text", "json", "hex"])
    paid = body(f"{KEY}&topic=payments")
    assert (paid["is_compressed"], paid["size_bytes"], paid["shown"]) == (True, 5_000, "paid " * 1_000)
    assert body("binary")["form"] == "hex"
    assert str(body("order-3", "hex")["shown"]).startswith("00000000  7b 22 69 64")
    large = body("large")
    assert (large["size_bytes"], large["is_cut"]) == (LARGE_BYTES, True)
    saved = console.get(f"/messages/{message_of(console, 'large')}/body")
    assert (saved.status, len(saved.text.encode("utf-8", "surrogateescape"))) == (200, LARGE_BYTES)
    assert saved.headers["content-disposition"].startswith("attachment")
    assert saved.headers["content-type"] == "application/octet-stream"
    assert console.get(f"/messages/{message_of(console, 'empty')}").status == 200


def test_lag_of_both_kinds_of_groups(console: RunningConsole) -> None:
    """A group tells its lag in messages, bytes and seconds, whichever service keeps its position."""
    for name, is_shared, messages in (("billing", True, 197), ("readers", False, 170)):
        row = console.json(f"/groups/{name}.json")["row"]
        assert (row["is_shared"], row["lag"]["messages"]) == (is_shared, messages)
        assert row["lag"]["bytes"] > 0
        assert row["lag"]["seconds"] >= 0
    assert console.json("/groups/paused.json")["row"]["is_paused"]


def test_state_of_a_message_at_each_group(console: RunningConsole) -> None:
    """A message that a group has read is told from a message that it has not."""
    row = console.json("/find.json?q=order-0&topic=orders")["messages"][0]
    states = {one["group"]: one["state"] for one in console.json(f"/messages/{row['id']}.json")["states"]}
    assert states["readers"] == "read"
    assert states["billing"] == "dead_letter"


def test_dead_letters(console: RunningConsole) -> None:
    """Letters have their origin; a condition selects some, and a wrong condition is explained."""
    assert [(one["name"], one["dead_letter_count"]) for one in console.json("/dead-letters.json")["groups"]] == [
        ("billing", 5)
    ]
    letters = console.json("/dead-letters/billing.json")["rows"]
    assert sorted(one["origin_topic"] for one in letters) == ["hostile"] * 2 + ["orders"] * 3
    some = console.json("/dead-letters/billing.json?where=region%20%3D%20'us'")["rows"]
    assert 0 < len(some) < len(letters)
    causes = {one["origin_topic"]: one for one in console.json("/dead-letters/billing.json")["causes"]}
    assert {topic: one["letter_count"] for topic, one in causes.items()} == {"orders": 3, "hostile": 2}
    assert causes["orders"]["reason"] == "all attempts failed"
    selected = console.json(f"/dead-letters/billing.json?age=hour&where={in_path(causes['orders']['where'])}")["rows"]
    assert [one["origin_topic"] for one in selected] == ["orders"] * 3
    assert console.json("/dead-letters/billing.json?age=older")["rows"] == []
    assert "ends too early" in console.json("/dead-letters/billing.json?where=x%20%3D")["refusal"]


def test_hostile_text_is_shown_and_never_markup(console: RunningConsole, subtests: pytest.Subtests) -> None:
    """Names, keys, tags, properties and bodies of hostile text come out escaped, without control characters."""
    message_id = message_of(console, "hostile-key")
    for path in (f"/messages/{message_id}", "/topics/hostile", "/dead-letters/billing", f"/find?q={in_path(HOSTILE)}"):
        with subtests.test(path):
            text = console.get(path).text
            assert SCRIPT not in text
            text = re.sub(r'(?:value|data-copy)="[^"]*"', "", text)  # attributes keep the text as it was given
            assert not re.search(r"<(img|script(?! src=\"/static/))", text)
            assert not set(text) & {"\u202e", "\x07", "\x1b", "\x7f"}


def test_live_tail(console: RunningConsole, filled: Store) -> None:
    """New messages come as events, the cursor continues after a break, and a condition selects."""
    cursor = console.json("/topics/payments.json")["cursor"]
    path = f"/topics/payments/tail?cursor={cursor}&where=price%20%3D%207"
    with socket.create_connection(("127.0.0.1", console.port), LIMIT_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        reader = connection.makefile("rb")
        _until(reader, b"event: hello")
        with reput_client.connect(**filled.targets) as client, client.producer() as producer:
            producer.send("payments", b"other", properties={"price": "6"}).result()
            producer.send("payments", b"seven <b>", properties={"price": "7"}).result()
        line = _until(reader, b"seven")
        assert b"&lt;b&gt;" in line
        assert b"other" not in line
    newer = console.get(f"/topics/payments/newer?cursor={cursor}")
    assert newer.json["count"] >= 1
    assert newer.json["cursor"] != cursor
    for wrong in ("", "x", "0.1,", "1." + "9" * 30, ",".join(f"{at}.0" for at in range(40))):
        assert console.get(f"/topics/payments/tail?cursor={wrong}").status == 400


def _until(reader: object, text: bytes) -> bytes:
    for line in reader:  # type: ignore[attr-defined]
        if text in line:
            return bytes(line)
    raise AssertionError("the tail ended")


def test_a_killed_service_is_told_and_the_page_recovers(tmp_path: Path) -> None:
    """Without its Indexer a store is shown with gaps; "could not look" is never "not found"."""
    with store(tmp_path, "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client, count=20)
        with console_of(running.targets, "--store-timeout-ms", "4000") as console:
            assert console.json("/store.json")["is_healthy"]
            os.kill(running.child("indexer"), signal.SIGSTOP)
            found = console.get("/find.json?q=order-3")
            assert (found.status, found.json["outcome"]) == (503, "could_not_look")
            assert "Could not look" in console.get("/?q=order-3").text
            health = {one["name"]: one["health"] for one in console.json("/store.json")["services"]}
            assert (health["Indexer"], health["CommitLog"]) == ("away", "good")
            topic = console.get("/topics/orders.json")
            assert (topic.status, topic.json["row"]["message_count"]) == (200, None)
            assert topic.json["gaps"]
            os.kill(running.child("indexer"), signal.SIGCONT)
            end_s = time.monotonic() + LIMIT_S
            while not console.json("/store.json")["is_healthy"]:
                assert time.monotonic() < end_s
            assert console.json("/find.json?q=order-3")["outcome"] == "found"


def test_without_a_store(tmp_path: Path) -> None:
    """A console whose store is away serves pages that say so."""
    gone = dict.fromkeys(("commitlog", "indexer", "janitor", "delivery"), "127.0.0.1:1")
    with console_of(gone, "--store-timeout-ms", "500") as console:
        assert console.get("/").status == 200
        for path in ("/store", "/topics", "/groups"):
            assert "does not answer" in console.get(path).text
        for path in ("/topics/orders.json", "/groups/billing.json", "/find.json?q=a", f"/messages/{'0' * 32}.json"):
            assert console.get(path).status == 503, path


def test_the_gate(console: RunningConsole) -> None:
    """Foreign hosts, methods, origins and sizes are refused; every answer has the headers that keep scripts out."""
    for path in ("/", "/store.json", "/nope", "/static/console.css"):
        headers = console.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    assert console.get("/store.json").headers["cache-control"] == "no-store"
    for host in ("evil.example", "127.0.0.1.evil.example", "", "a@127.0.0.1", "[::1"):
        assert console.get("/", Host=host).status == 421, host
    assert console.get("/", Host="localhost:1234").status == 200
    assert console.ask("DELETE", "/topics/orders").status == 405
    assert console.ask("POST", "/logout", {"Origin": "https://evil.example"}).status == 403
    assert console.ask("POST", "/logout", {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert console.get("/?q=" + "x" * 5_000).status == 414
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert console.ask("POST", "/login", form, "token=" + "x" * 20_000).status == 413
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"):
        assert console.get(path).status == 404, path


def test_login(filled: Store, tmp_path: Path) -> None:
    """With a token nothing is shown before the login; a session ends with its token."""
    tokens = tmp_path / "tokens"
    tokens.write_text("right-token\n")
    tokens.chmod(0o600)
    with console_of(filled.targets, "--login-token-file", str(tokens)) as console:
        refused = console.get("/topics?name=o")
        assert (refused.status, refused.headers["location"]) == (303, "/login?next=%2Ftopics%3Fname%3Do")
        assert console.get("/topics.json").status == 401
        assert console.get("/topics.json", Authorization="Bearer wrong").status == 401
        assert console.get("/topics.json", Authorization="Bearer right-token").status == 200
        page = console.get("/login")
        cookie = page.headers["set-cookie"].partition(";")[0]
        assert "samesite=strict" in page.headers["set-cookie"].lower()
        assert "httponly" in page.headers["set-cookie"].lower()
        form_token = re.search(r'name="form_token" value="([^"]+)"', page.text)
        assert form_token is not None
        form = {"Content-Type": "application/x-www-form-urlencoded"}

        def log_in(token: str, shown: str, *, target: str = "/topics") -> tuple[int, str]:
            body = f"token={token}&form_token={shown}"
            answer = console.ask("POST", f"/login?next={in_path(target)}", {**form, "Cookie": cookie}, body)
            return answer.status, answer.headers.get("location", "") + answer.headers.get("set-cookie", "")

        assert log_in("right-token", "other")[0] == 403
        assert log_in("wrong-token", form_token[1])[0] == 401
        assert log_in("right-token", form_token[1], target="//evil.example")[1].startswith("/reput_session")
        status, found = log_in("right-token", form_token[1])
        assert (status, found.startswith("/topics")) == (303, True)
        session = found.removeprefix("/topics").partition(";")[0]
        assert console.get("/topics", Cookie=session).status == 200
        assert console.get("/topics", Cookie=session[:-1] + ("0" if session[-1] != "0" else "1")).status == 303
        tokens.write_text("new-token\n")
        end_s = time.monotonic() + LIMIT_S
        while console.get("/topics", Cookie=session).status != 303:
            assert time.monotonic() < end_s


def test_bodies_can_be_hidden(filled: Store) -> None:
    """With `hide_bodies` no page, twin, tail or file shows a body, or its begin."""
    with console_of(filled.targets, "--hide-bodies", "true") as console:
        row = console.json("/find.json?q=order-3&topic=orders")["messages"][0]
        assert row["preview"] == ""
        for path in (f"/messages/{row['id']}", f"/messages/{row['id']}.json", "/topics/orders", "/topics/orders.json"):
            assert "customer" not in console.get(path).text, path
        assert console.get(f"/messages/{row['id']}/body").status == 404
        assert "customer" not in console.get("/topics/orders/newer?cursor=0.0,1.0").text


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--listen-host", "0.0.0.0"), "tls_certificate_file"),
        (("--listen-host", "0.0.0.0", "--allow-insecure", "true"), "login_token_file"),
        (("--login-token-file", "/nope"), "login_token_file: /nope"),
        (("--commitlog-target", "nonsense"), "commitlog is 'nonsense'"),
    ],
)
def test_refused_starts(flags: tuple[str, ...], text: str) -> None:
    """A console that others could reach, or that has wrong settings, ends with a single line."""
    command = [sys.executable, "-m", "services.console", "--port", "0", "--metrics-port", "0", *flags]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    assert text in lines[0]


def test_part_of_reput_up(tmp_path: Path) -> None:
    """`reput up` runs a console; its end is a line, and the store goes on."""
    with store(tmp_path, "--console", "--console-port", "0") as running:
        pid = running.child("console")
        os.kill(pid, signal.SIGKILL)
        line = running.wait_for_line("the store runs without it")
        assert line.startswith("console: was killed by SIGKILL")
        assert running.run("health").code == 0


def until_complete(console: RunningConsole, path: str) -> None:
    """Read a page until it has no gap: a service that has just started may answer late on a busy machine."""
    end = time.monotonic() + LIMIT_S
    while (found := console.json(path))["gaps"]:
        assert time.monotonic() < end, (path, found["gaps"])


def test_the_console_of_reput_up_shows_what_operators_may_ask_for(tmp_path: Path) -> None:
    """The audit, connections and the reasons of retention are complete there, without a setting."""
    port = free_port()
    with store(tmp_path, "--console", "--console-port", str(port)) as running:
        console = RunningConsole(port, running.process)
        for path in ("/audit.json", "/connections.json", "/retention.json"):
            until_complete(console, path)
        assert {row["service"] for row in console.json("/connections.json")["rows"]} == {
            "commitlog", "indexer", "janitor"
        }  # fmt: skip
        assert [row["health"] for row in console.json("/store.json")["services"]] == ["good"] * 3


def test_silent_connections_are_closed(console: RunningConsole) -> None:
    """A connection that sends no request, or only the begin of a request, is closed."""
    for text in (b"", b"GET / HT"):
        with socket.create_connection(("127.0.0.1", console.port), LIMIT_S) as connection:
            connection.sendall(text)
            assert connection.recv(1_000) == b""
