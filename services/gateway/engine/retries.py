# SPDX-License-Identifier: Apache-2.0
"""How clients are told to try again, by what their libraries understand.

Java, Go, C++ and C# take a list of waits; so does Python, and nothing else. Node.js takes a first and a longest wait,
and nothing else, and reads its seconds as milliseconds; so what it asks for after a failure is not what it means.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NODE_WAIT_MS_MIN = 1_000
"""Less than that a client for Node.js asks for only because it reads seconds as milliseconds."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Waits that grow."""

    initial_ms: int
    most_ms: int
    multiplier: float


PRODUCER_ATTEMPTS_MAX = 3
PRODUCER = Exponential(10, 1_000, 2.0)
"""How producers send again. Java does not begin without, nor does Node.js."""


def of_consumer(backoffs_ms: Sequence[int], *, is_node: bool) -> Exponential | Sequence[int]:
    """Return a consumer's waits after failures, from its group's."""
    if not is_node:
        return backoffs_ms
    first, most = backoffs_ms[0], max(backoffs_ms)
    return Exponential(first, most, 2.0 if most > first else 1.0)


def is_misread(invisible_ms: int, *, is_node: bool) -> bool:
    """Return whether a wait after a failure is not what is meant, so that the group's own has to do."""
    return is_node and invisible_ms < NODE_WAIT_MS_MIN
