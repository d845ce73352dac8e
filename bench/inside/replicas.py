# SPDX-License-Identifier: Apache-2.0
"""The cost of an asynchronous replica on the same machine, and how far behind it is while messages keep coming."""

import time
from pathlib import Path
from typing import Any

import grpc
from reput.commitlog.v1 import append_service_pb2_grpc
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.common.v1 import message_pb2
from reput_client import Client, connect

from bench.inside import filling
from bench.load.timing import percentiles_ms
from bench.peers.peer import Durability
from bench.results import Figures
from bench.store import Store, copied, running

BODY_SIZE_BYTES = 1_024
BATCH_SIZE_BYTES = 1 << 20
BACKGROUND_WARM_UP_S = 2.5
PROBE_INTERVAL_S = 0.004
POLL_S = 0.005
"""Time between two questions to the copy for its end. A question takes a third of a millisecond of the copy's loop and
as much here, so that asking without a break would take a core of the two.
"""


def one_replica(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Find the append rate without and with a replica, and the replica's delay at half of the rate that both keep.

    While the log appends as fast as it can the copy falls behind, so that rate is no measure of a steady load.
    """
    with running(folder, mode) as store:
        alone = _append(store, seconds)
        with copied(store) as target, connect(commitlog=target) as copy:
            _wait_for(store, copy)
            with_one = _append(store, seconds)
            behind_s = _wait_for(store, copy)
            rate, duration_s = filling.rate(with_one), filling.number(with_one, "seconds")
            copied_rate = rate * duration_s / (duration_s + behind_s)
            lags_s, background_per_s = _lags(store, copy, copied_rate / 2, seconds)
    percentiles = percentiles_ms(lags_s)
    return {
        "alone_messages_per_s": filling.rate(alone),
        "messages_per_s": rate,
        "share": rate / filling.rate(alone),
        "behind_after_the_last_one_s": behind_s,
        "copied_share": copied_rate / filling.rate(alone),
        "lag_p50_ms": percentiles["p50"],
        "lag_p99_ms": percentiles["p99"],
        "probes": len(lags_s),
        "background_messages_per_s": background_per_s,
    }


def _append(store: Store, seconds: float) -> dict[str, object]:
    words: dict[str, object] = {"body": BODY_SIZE_BYTES, "batch": BATCH_SIZE_BYTES, "seconds": seconds}
    return filling.load(store, "append", words | {"indexer": store.indexer})


def _wait_for(store: Store, copy: Client) -> float:
    """Wait until the copy has all that the store has. Returns how long."""
    start_s = time.perf_counter()
    with connect(commitlog=store.commitlog) as client:
        end = client.admin.commitlog_status().max_physical_offset
    return _reached(copy, end) - start_s


def _reached(copy: Client, end: int) -> float:
    """Return the moment when the copy has the log up to an offset."""
    while copy.admin.commitlog_status().max_physical_offset < end:
        time.sleep(POLL_S)
    return time.perf_counter()


def _lags(store: Store, copy: Client, messages_per_s: float, seconds: float) -> tuple[list[float], float]:
    """Return times from the acknowledgement of a message until the copy has it, and the rate of the load meanwhile."""
    background = filling.background_load(
        store,
        messages_per_s=messages_per_s,
        body_size_bytes=BODY_SIZE_BYTES,
        seconds=seconds + BACKGROUND_WARM_UP_S,
    )
    request = AppendRequest(
        messages=[AppendMessage(topic="probe", body=b"probe")], durability=message_pb2.DURABILITY_MEMORY
    )
    lags_s = []
    try:
        time.sleep(BACKGROUND_WARM_UP_S)
        until_s = time.perf_counter() + seconds
        with grpc.insecure_channel(store.commitlog) as channel:
            stub: Any = append_service_pb2_grpc.AppendServiceStub(channel)
            while time.perf_counter() < until_s:
                end = stub.Append(request).result.end_physical_offset
                acknowledged_s = time.perf_counter()
                lags_s.append(_reached(copy, end) - acknowledged_s)
                time.sleep(PROBE_INTERVAL_S)
    finally:
        background_per_s = filling.finished(background)
    return lags_s, background_per_s
