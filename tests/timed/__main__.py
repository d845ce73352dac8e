# SPDX-License-Identifier: Apache-2.0
"""20,000 messages at random times of a minute, in real time, and their delays."""

import argparse
import asyncio
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.support import served_commitlog, served_delivery, served_indexer
from tests.timed.load import Load

LEAST_MS = 5_000


async def measured(folder: Path, count: int, seconds: int, seed: int) -> int:
    """Print the delays. Return an exit code."""
    commitlog = await (await served_commitlog.Process.start(folder)).wait_serving()
    log_target = f"127.0.0.1:{commitlog.port}"
    indexer = await (await served_indexer.Process.start(folder, "--commitlog-target", log_target)).wait_serving()
    try:
        async with (
            commitlog.client() as log,
            indexer.client() as index,
            served_delivery.process(log_target, f"127.0.0.1:{indexer.port}"),
        ):
            load = Load(log, index, random.Random(seed))
            await load.send(count, least_ms=LEAST_MS, most_ms=LEAST_MS + seconds * 1_000)
            await asyncio.sleep(seconds)
            outcome = await load.until_delivered()
    finally:
        for process in (indexer, commitlog):
            await process.end(signal.SIGKILL)
    shown = ", ".join(f"p{percent:g} {outcome.late(percent)}" for percent in (50, 90, 99, 99.9, 100))
    print(f"{len(outcome.late_ms)} of {count} messages came within {seconds} s; late in ms: {shown}")
    print(f"early {outcome.early_count}, twice {len(outcome.twice)}, missing {len(outcome.missing)}")
    return 1 if outcome.early_count or outcome.twice or outcome.missing else 0


def main() -> int:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.timed", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="messages")
    parser.add_argument("--seconds", type=int, default=60, help="how far apart their times are")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(Path(folder), options.count, options.seconds, options.seed))


if __name__ == "__main__":
    sys.exit(main())
