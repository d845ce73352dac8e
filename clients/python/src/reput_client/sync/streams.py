# SPDX-License-Identifier: Apache-2.0
"""Parts that differ between event loops and threads: requests in a queue, answers in time, an early begin."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc

from reput_client.core.errors import no_answer


class Requests(SimpleQueue[bytes | None]):
    """The requests of a stream, for gRPC's thread to fetch. None ends them."""

    def __iter__(self) -> Iterator[bytes]:
        while (request := self.get()) is not None:
            yield request


def next_in_time(call: Any, timeout_s: float | None) -> Any:
    """Return a stream's next answer, None at its end. Raises grpc.RpcError.

    Raises DeadlineExceededError after `timeout_s` seconds; the call is cancelled then.
    """
    if timeout_s is None:
        return next(call, None)
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        call.cancel()

    timer = threading.Timer(timeout_s, give_up)
    timer.daemon = True
    timer.start()
    try:
        return next(call, None)
    except grpc.RpcError:
        if is_late.is_set():
            raise no_answer(timeout_s) from None
        raise
    finally:
        timer.cancel()


def at_once(begin: Callable[[], None]) -> None:
    """Begin now."""
    begin()
