# SPDX-License-Identifier: Apache-2.0
"""Retry policies for clients, in the form that each library understands.

Java, Go, C++ and C# accept a list of waits. Python accepts only a list of waits. Node.js accepts only a first and a
longest wait, and reads the seconds as milliseconds, so it requests a wrong wait after a failure.
"""

from collections.abc import Sequence

from msgspec import Struct

NODE_WAIT_MS_MIN = 1_000
"""A Node.js client requests a shorter wait only because it reads seconds as milliseconds."""


class Exponential(Struct, frozen=True):
    """Waits that grow by a factor, up to a limit."""

    initial_ms: int
    most_ms: int
    multiplier: float


PRODUCER_ATTEMPTS_MAX = 3
PRODUCER = Exponential(10, 1_000, 2.0)
"""How producers retry a send. Producers for Java and Node.js do not start without it."""


def of_consumer(backoffs_ms: Sequence[int], *, is_node: bool) -> Exponential | Sequence[int]:
    """Return a consumer's waits after failures, from the waits of its group."""
    if not is_node:
        return backoffs_ms
    first, most = backoffs_ms[0], max(backoffs_ms)
    return Exponential(first, most, 2.0 if most > first else 1.0)


def is_misread(invisible_ms: int, *, is_node: bool) -> bool:
    """Return whether a requested wait after a failure is misread, so that the group's own wait is used instead."""
    return is_node and invisible_ms < NODE_WAIT_MS_MIN
