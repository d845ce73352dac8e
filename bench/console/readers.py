# SPDX-License-Identifier: Apache-2.0
"""Readers of a console: each requests a page every 5 s, as a browser with an open page does; some hold a live tail."""

import http.client
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

REFRESH_S = 5.0
"""The console's script refreshes an open page at this interval."""
TIMEOUT_S = 30.0


@dataclass(slots=True)
class PageResult:
    """Times, the size and the problems of the answers to all requests of a page."""

    first_bytes_ms: list[float] = field(default_factory=list)
    size_bytes: int = 0
    """The largest answer."""
    problems: Counter[str] = field(default_factory=Counter)


def get(port: int, path: str) -> tuple[float, int, bytes]:
    """Request a page on a connection of its own. Returns the time to its first byte, its status and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        begin_s = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        first_ms = (time.perf_counter() - begin_s) * 1000
        return first_ms, answer.status, answer.read()
    finally:
        connection.close()


def load(port: int, path: str, result: PageResult) -> None:
    """Request a page, and add the answer to its result."""
    try:
        first_ms, status, body = get(port, path)
    except OSError as error:
        result.problems[type(error).__name__] += 1
        return
    result.first_bytes_ms.append(first_ms)
    result.size_bytes = max(result.size_bytes, len(body))
    if status != 200:
        result.problems[f"status {status}"] += 1
    elif b"not complete" in body:
        result.problems["not complete"] += 1


class Readers:
    """Readers as threads. Each reader walks through the pages, a page at each refresh, until `stop`."""

    def __init__(self, port: int, paths: Sequence[str], count: int, tail: str, tail_count: int) -> None:
        self.results = {path: PageResult() for path in paths}
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
            path = paths[at % len(paths)]
            load(self._port, path, self.results[path])
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
