# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.load OPERATION --target HOST:PORT …`: a load, with a line of JSON on stdout.

The same command line as the load generators of the other systems, with some flags of its own.
"""

import argparse
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from reput.common.v1 import message_pb2
from reput_client import connect

from bench import batches
from bench.load import producing, reading, sharing, streams
from bench.load.durabilities import DURABILITIES
from bench.load.timing import Loaded
from libs.runtime.watch import malloc

WARM_UP_S = 1.0
WARM_UP_CALL_COUNT = 512

Arguments = argparse.Namespace
Load = Callable[..., Coroutine[Any, Any, Loaded]]


def topics_of(count: int) -> list[str]:
    """Return the names of so many topics."""
    return [batches.TOPIC] if count == 1 else [f"{batches.TOPIC}-{number}" for number in range(count)]


async def append(arguments: Arguments) -> Loaded:
    """Append for some seconds, after a warm-up."""
    durability = DURABILITIES[arguments.durability]
    if arguments.through == "producer":
        chosen = producing.options(durability, batch_size_bytes=arguments.batch, linger_ms=arguments.linger_ms)

        async def load(seconds: float) -> Loaded:
            return await producing.append_single(
                arguments.target,
                chosen,
                body_size_bytes=arguments.body,
                caller_count=arguments.producers,
                seconds=seconds,
            )
    else:
        source = source_of(arguments, durability)

        async def load(seconds: float) -> Loaded:
            return await streams.append_streams(
                arguments.target,
                source,
                seconds,
                stream_count=arguments.producers,
                durability=durability,
                messages_per_s=arguments.messages_per_s,
            )

    await load(WARM_UP_S)
    for _ in range(cycle_count(arguments)):
        await load(0)
    done = await load(arguments.seconds)
    return Loaded(done.message_count, done.message_count * arguments.body, done.duration_s)


def source_of(arguments: Arguments, durability: message_pb2.Durability.ValueType) -> batches.Source:
    """Return the batches of a stream. With many topics there are so many that every topic gets messages."""
    if arguments.keys == "distinct":
        return batches.NumberedBatches(
            body_size_bytes=arguments.body, batch_size_bytes=arguments.batch, durability=durability
        )
    return batches.prebuilt(
        body_size_bytes=arguments.body,
        batch_size_bytes=arguments.batch,
        durability=durability,
        topics=topics_of(arguments.topics),
        variant_count=max(batches.VARIANT_COUNT, cycle_count(arguments)),
    )


def cycle_count(arguments: Arguments) -> int:
    """Return how many batches name every queue of every topic, if there are several. They are made before the start."""
    per_batch = max(1, arguments.batch // (arguments.body + batches.PROPERTY_SIZE_BYTES))
    return -(-arguments.topics * batches.QUEUE_COUNT // per_batch) if arguments.topics > 1 else 0


async def latency(arguments: Arguments) -> Loaded:
    """Make calls that wait for their answer, after a warm-up."""
    durability = DURABILITIES[arguments.durability]
    if arguments.through == "producer":
        chosen = producing.options(durability, batch_size_bytes=512 << 10, linger_ms=arguments.linger_ms)

        async def load(call_count: int) -> Loaded:
            return await producing.latency_single(
                arguments.target,
                chosen,
                body_size_bytes=arguments.body,
                caller_count=arguments.callers,
                call_count=call_count,
            )
    else:
        batch = batches.build(body_size_bytes=arguments.body, batch_size_bytes=1, durability=durability, variant=0)

        async def load(call_count: int) -> Loaded:
            return await streams.append_unary(
                arguments.target, batch, caller_count=arguments.callers, call_count=call_count, durability=durability
            )

    await load(WARM_UP_CALL_COUNT)
    done = await load(arguments.calls)
    return Loaded(done.message_count, done.message_count * arguments.body, done.duration_s, done.latencies_s)


async def read(arguments: Arguments) -> Loaded:
    """Read back for some seconds, after a warm-up."""
    await reading.pull_all(arguments.indexer, WARM_UP_S)
    return await reading.pull_all(arguments.indexer, arguments.seconds)


async def lookup(arguments: Arguments) -> Loaded:
    """Look up keys of messages that were appended with `--keys distinct`, after a warm-up with other keys."""
    count = reading.stored_count(arguments.indexer)
    reading.look_up(arguments.indexer, call_count=WARM_UP_CALL_COUNT // 4, message_count=count)
    return reading.look_up(arguments.indexer, call_count=arguments.calls, message_count=count)


async def receive(arguments: Arguments) -> Loaded:
    """Receive as a group and acknowledge for some seconds, after a warm-up."""
    return await sharing.receive_and_acknowledge(
        arguments.delivery, caller_count=arguments.callers, warm_up_s=WARM_UP_S, seconds=arguments.seconds
    )


def index_figures(arguments: Arguments, done: Loaded) -> dict[str, object]:
    """Return how far the Indexer lags at the last acknowledgement, and its rate over all of it."""
    start_s = time.perf_counter()
    with connect(commitlog=arguments.target, indexer=arguments.indexer) as client:
        reading.wait_indexed(client)
    lag_s = time.perf_counter() - start_s
    return {"index_lag_s": lag_s, "indexed_messages_per_s": done.message_count / (done.duration_s + lag_s)}


OPERATIONS: dict[str, Load] = {
    "append": append,
    "latency": latency,
    "read": read,
    "lookup": lookup,
    "receive": receive,
}


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__, allow_abbrev=False)
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("--target", required=True, help="the CommitLog, host:port")
    parser.add_argument("--indexer", default="", help="the Indexer, host:port; append waits for it after the clock")
    parser.add_argument("--delivery", default="", help="the Delivery of receive, host:port")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--batch", type=int, default=1 << 20, help="bytes of a batch")
    parser.add_argument("--producers", type=int, default=1, help="streams, or callers of one producer")
    parser.add_argument("--callers", type=int, default=1, help="concurrent callers of latency and receive")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of append, read and receive")
    parser.add_argument("--calls", type=int, default=1000, help="calls of latency and lookup, in all")
    parser.add_argument("--durability", choices=DURABILITIES, default="async", help="what an acknowledgement waits for")
    parser.add_argument("--through", choices=("stream", "producer"), default="stream", help="how messages are sent")
    parser.add_argument("--linger-ms", type=float, default=5.0, help="the producer's linger")
    parser.add_argument("--keys", choices=("repeated", "distinct"), default="repeated", help="keys of a stream")
    parser.add_argument("--topics", type=int, default=1, help="topics that a stream goes to")
    parser.add_argument("--messages-per-s", type=float, default=0.0, help="rate of a stream; 0 is as fast as it can")
    return parser


def main() -> None:
    """Load and print."""
    arguments = parser().parse_args()
    malloc.tune()
    done = uvloop.run(OPERATIONS[arguments.operation](arguments))
    document = done.document()
    if arguments.operation == "append" and arguments.indexer:
        document |= index_figures(arguments, done)
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main()
