# SPDX-License-Identifier: Apache-2.0
"""The greedy clients of the console: readers that do not read, floods, forged hosts, cookies and tokens."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import grpc
from reput.commitlog.v1 import append_service_pb2, append_service_pb2_grpc

from tests.attack.caller import Counts, Targets
from tests.attack.stack import CONSOLE, LOGIN_TOKEN
from tests.attack.store import LARGE

BODY_BYTES, KEY = 4_000_000, "a-large-one"
READERS, SILENT, FLOODERS = 250, 600, 32
TIMEOUT_S = 30.0
OPEN_PATHS = ("/topics", "/topics.json", f"/topics/{LARGE}", "/groups", "/store.json", "/?q=no-such-key", "/find?q=x")
FORGED = ("/", "/topics.json", "/messages/x/body", f"/topics/{LARGE}/tail?cursor=0.0", "//login", "/login/../topics")


def bodies_that_nobody_reads(targets: Targets, seconds: float) -> Counts:
    """Asks for a large body on many connections, and takes nothing of the answers."""
    message = append_service_pb2.AppendMessage(
        topic="bodies", queue_id=0, body=random.Random(0).randbytes(BODY_BYTES), properties={"KEYS": KEY}
    )
    with grpc.insecure_channel(targets["commitlog"]) as channel:
        request = append_service_pb2.AppendRequest(messages=[message])
        append_service_pb2_grpc.AppendServiceStub(channel).Append(request, timeout=TIMEOUT_S)
    end_s = time.monotonic() + TIMEOUT_S
    while not (found := json.loads(_page(targets, f"/find.json?q={KEY}&topic=bodies")[1])["messages"]):
        if time.monotonic() > end_s:
            return {"unreached": 1}
        time.sleep(0.1)
    return _held(targets, f"/messages/{quote(found[0]['id'])}/body", seconds)


def tails_that_nobody_reads(targets: Targets, seconds: float) -> Counts:
    """Follows a topic of large messages on many connections from its begin, and takes nothing of the events."""
    return _held(targets, f"/topics/{LARGE}/tail?cursor=0.0", seconds)


def silent_readers(targets: Targets, seconds: float) -> Counts:
    """Holds more connections than there may be, which send heads of requests that never end."""
    sockets, sent, end_s = [], 0, time.monotonic() + seconds
    for _ in range(SILENT):
        with contextlib.suppress(OSError):
            sockets.append(_connected(targets, timeout_s=1.0))
    while time.monotonic() < end_s:
        for one in sockets:
            with contextlib.suppress(OSError):
                sent += one.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: y\r\n")
        time.sleep(0.5)
    return {"connections": len(sockets), "bytes": sent}


def floods_of_pages(targets: Targets, seconds: float) -> Counts:
    """Asks for all kinds of pages from many threads, as fast as answers come."""
    end_s = time.monotonic() + seconds

    def flood(number: int) -> Counter[str]:
        counts, chance = Counter[str](), random.Random(number)
        while time.monotonic() < end_s:
            counts[str(_page(targets, chance.choice(OPEN_PATHS))[0])] += 1
        return counts

    return _in_threads(flood)


def forged_requests(targets: Targets, seconds: float) -> Counts:
    """Asks with hosts, cookies, tokens and heads that are wrong in every way. A page that opens is counted."""
    end_s = time.monotonic() + seconds

    def forge(number: int) -> Counter[str]:
        counts, chance = Counter[str](), random.Random(number)
        while time.monotonic() < end_s:
            status, text = _page(targets, chance.choice(FORGED), **_forged_headers(chance))
            is_login = b"form_token" in text
            counts["opened" if status == 200 and not is_login else str(status)] += 1
        return counts

    return _in_threads(forge)


def _forged_headers(chance: random.Random) -> dict[str, str]:
    port, junk = chance.randrange(65_536), chance.randbytes(chance.randrange(300)).decode("latin-1")
    clean = "".join(one for one in junk if one.isprintable())
    name = chance.choice(["localhost", "evil.example", "127.0.0.1@evil.example", clean[:50], f"[::1]:{port}", ""])
    end_s = int(time.time()) + chance.randrange(-9_999, 9_999)
    cookies = [
        f"reput_session_{port}={end_s}.{chance.randbytes(32).hex()}", f"reput_session_{port}={clean}", clean,
        ";".join(f"reput_session_{port}={one}" for one in range(500)), "=" * 4_000,
    ]  # fmt: skip
    headers = {"Host": name, "Cookie": chance.choice(cookies), "X-Auth-Request-Email": "ann@example.com"}
    if chance.random() < 0.3:
        headers["Authorization"] = chance.choice([f"Bearer {clean}", "Bearer ", f"Basic {LOGIN_TOKEN}", clean])
    return headers | {"X-Forwarded-For": f"10.0.{port >> 8}.{port & 255}", "X-Forwarded-Host": "localhost"}


def _in_threads(work: object) -> Counts:
    with ThreadPoolExecutor(FLOODERS) as threads:
        return dict(sum(threads.map(work, range(FLOODERS)), Counter[str]()))  # type: ignore[arg-type]


def _held(targets: Targets, path: str, seconds: float) -> Counts:
    """Ask on many connections, and read nothing. The counts are of the connections that were made."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {LOGIN_TOKEN}\r\n\r\n".encode()
    sockets, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        while len(sockets) < READERS and time.monotonic() < end_s:
            one = _connected(targets, timeout_s=TIMEOUT_S)
            with contextlib.suppress(OSError):
                one.sendall(head)
            sockets.append(one)
        time.sleep(0.1)
    return {"readers": len(sockets)}


def _connected(targets: Targets, *, timeout_s: float) -> socket.socket:
    """A connection whose system takes little of an answer that nobody reads."""
    host, _, port = targets[CONSOLE].rpartition(":")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    one.settimeout(timeout_s)
    one.connect((host, int(port)))
    return one


def _page(targets: Targets, path: str, **headers: str) -> tuple[int, bytes]:
    """Status and text of a page, on a connection of its own; status 0 if there is no answer."""
    given = headers or {"Host": "localhost", "Authorization": f"Bearer {LOGIN_TOKEN}"}
    connection = http.client.HTTPConnection(targets[CONSOLE], timeout=TIMEOUT_S)
    try:
        connection.request("GET", path, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException, UnicodeError, ValueError):
        return 0, b""
    finally:
        connection.close()
