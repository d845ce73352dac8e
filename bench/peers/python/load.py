# SPDX-License-Identifier: Apache-2.0
"""The common part of the load generators in Python: their command line, their clock, and the line that they print.

    python LOAD.py append --target HOST:PORT --body BYTES --batch BYTES --seconds S

They run in an environment of their own, which has the clients of the other systems (requirements.txt).
"""

import argparse
import json
import time
from collections.abc import Awaitable, Callable

TOPIC = "bench"
QUEUE_COUNT = 4
WARM_UP_S = 1.0

SendUntil = Callable[[float], Awaitable[int]]
"""Sends until a time of `time.perf_counter`, waits for all acknowledgements, and returns their number."""


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("operation", choices=("append",))
    parser.add_argument("--target", required=True, help="the server, host:port")
    parser.add_argument("--body", type=int, required=True, help="bytes of a body")
    parser.add_argument("--batch", type=int, required=True, help="most bytes of a batch")
    parser.add_argument("--producers", type=int, choices=(1,), default=1, help="a single producer")
    parser.add_argument("--seconds", type=float, required=True, help="length of the load")
    return parser.parse_args()


async def measure(given: argparse.Namespace, send_until: SendUntil) -> None:
    """Warm up, measure, and print the result as a line of JSON."""
    await send_until(time.perf_counter() + WARM_UP_S)
    start_s = time.perf_counter()
    count = await send_until(start_s + given.seconds)
    duration_s = time.perf_counter() - start_s
    print(json.dumps({"messages": count, "bytes": count * given.body, "seconds": duration_s}), flush=True)
