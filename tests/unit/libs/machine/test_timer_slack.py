# SPDX-License-Identifier: Apache-2.0
"""Threads that are started in the block wake later, and the calling thread as before."""

import ctypes
import threading

from libs.machine.timer_slack import started_with_slack

PR_GET_TIMERSLACK = 30


def slack_ns() -> int:
    return int(ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0))


def test_started_threads_inherit_the_slack() -> None:
    """A thread of the block has its slack, and the calling thread has its own again."""
    before, found = slack_ns(), list[int]()
    with started_with_slack(0.02):
        thread = threading.Thread(target=lambda: found.append(slack_ns()))
        thread.start()
    thread.join()
    assert found == [20_000_000]
    assert slack_ns() == before
