# SPDX-License-Identifier: Apache-2.0
"""Readers of a console: each asks for its page again as a browser does that keeps it open; some hold a live tail."""

import http.client
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

REFRESH_S = 5.0
"""The console's script asks for a page that is open as often."""
TIMEOUT_S = 30.0


@dataclass(slots=True)
class Seen:
    """What readers saw of a page."""

    first_bytes_ms: list[float] = field(default_factory=list)
    size_bytes: int = 0
    """The largest answer."""
    problems: list[str] = field(default_factory=list)


def ask(port: int, path: str) -> tuple[float, int, bytes]:
    """Ask for a page on a connection of its own. Returns the time to its first byte, its status and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        begin_s = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        first_ms = (time.perf_counter() - begin_s) * 1000
        return first_ms, answer.status, answer.read()
    finally:
        connection.close()


def look(port: int, path: str, seen: Seen) -> None:
    """Ask for a page and keep what was seen."""
    try:
        first_ms, status, body = ask(port, path)
    except OSError as error:
        seen.problems.append(str(error))
        return
    seen.first_bytes_ms.append(first_ms)
    seen.size_bytes = max(seen.size_bytes, len(body))
    if status != 200 or b"not complete" in body:
        seen.problems.append(f"status {status}")


class Readers:
    """Readers that keep pages open until they are stopped, each a page, one after the other."""

    def __init__(self, port: int, paths: Sequence[str], count: int, tail: str, tail_count: int) -> None:
        self.seen = {path: Seen() for path in paths}
        self._port, self._is_over = port, threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_open, args=(paths, at, at * REFRESH_S / count)) for at in range(count)
        ]
        self._threads += [threading.Thread(target=self._follow, args=(tail,)) for _ in range(tail_count)]

    def start(self) -> None:
        """Open the pages, spread over the time of a refresh."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Close the pages."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _keep_open(self, paths: Sequence[str], at: int, delay_s: float) -> None:
        self._is_over.wait(delay_s)
        while not self._is_over.is_set():
            begin_s = time.perf_counter()
            look(self._port, paths[at % len(paths)], self.seen[paths[at % len(paths)]])
            at += 1
            self._is_over.wait(max(REFRESH_S - (time.perf_counter() - begin_s), 0))

    def _follow(self, tail: str) -> None:
        """Hold a live tail, and open it again when it ends."""
        while not self._is_over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
            try:
                connection.request("GET", tail)
                answer = connection.getresponse()
                while not self._is_over.is_set() and answer.readline():
                    pass
            except OSError:
                self._is_over.wait(1)
            finally:
                connection.close()
