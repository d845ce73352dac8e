# SPDX-License-Identifier: Apache-2.0
"""Notices to systemd: a running event loop sends them often enough, a blocked loop does not."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.runtime.process import alive_interval_s, notify, saying_alive
from tests.support.patience import LIMIT_S


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The notices that systemd receives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield heard


def count_of(heard: socket.socket) -> int:
    """The number of notices that have arrived."""
    heard.setblocking(False)
    count = 0
    while True:
        try:
            assert heard.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "120000000"}, 40.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_how_often(environment: dict[str, str], interval_s: float | None) -> None:
    """Three notices in systemd's interval; a setting for another process does not count."""
    assert alive_interval_s(environment) == interval_s


async def test_a_loop_that_turns_is_heard(heard: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notices are sent from the begin of the block to its end.

    While a step blocks the event loop no notice is sent.
    """
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    async with saying_alive():
        await asyncio.to_thread(heard.recv, 100)
        await asyncio.to_thread(heard.recv, 100)
        await asyncio.sleep(0)
        count_of(heard)
        time.sleep(0.2)  # noqa: ASYNC251 - a step that holds the loop
        assert count_of(heard) == 0
        heard.settimeout(LIMIT_S)
        await asyncio.to_thread(heard.recv, 100)
    await asyncio.sleep(0.05)
    count_of(heard)
    await asyncio.sleep(0.1)
    assert count_of(heard) == 0


async def test_nobody_waits(heard: socket.socket) -> None:
    """No notice is sent without a watchdog."""
    async with saying_alive():
        await asyncio.sleep(0.05)
    assert count_of(heard) == 0


def test_a_notice_that_nobody_takes(monkeypatch: pytest.MonkeyPatch, heard: socket.socket) -> None:
    """A full queue or a missing socket does not block the caller."""
    for _ in range(2_000):
        notify("WATCHDOG=1", wait_s=0)
    assert 0 < count_of(heard) < 2_000
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    notify("READY=1")
