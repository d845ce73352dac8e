# SPDX-License-Identifier: Apache-2.0
"""A load that gives each panel of the boards data: it sends, receives, scans, buries and is refused."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from reput.indexer.v1 import scan_service_pb2, scan_service_pb2_grpc
from reput_client import ReputError, connect

from tests.alarms.load import TOPIC, loaded, repeated
from tests.alarms.site import Site
from tests.support.patience import LIMIT_S

BURYING_GROUP = "burying"
"""A group whose messages become dead letters."""
LOAD_INTERVAL_S = 1.0


@contextmanager
def store_loaded(made: Site) -> Iterator[None]:
    """Load a store of four services within the block."""
    log, index, delivery = (made.services[name].target for name in ("commitlog", "indexer", "delivery"))
    with (
        loaded(made),
        connect(commitlog=log, indexer=index, delivery=delivery) as client,
        grpc.insecure_channel(index) as channel,
    ):
        scans: Any = scan_service_pb2_grpc.ScanServiceStub(channel)

        def load() -> None:
            plan = scans.PlanScan(scan_service_pb2.PlanScanRequest(topics=[TOPIC]), timeout=LIMIT_S)
            for partition in plan.partitions:
                list(scans.Scan(scan_service_pb2.ScanRequest(partition=partition), timeout=LIMIT_S))
            with contextlib.suppress(ReputError):
                client.topics.get("there-is-no-such-topic")
            with client.share_consumer(TOPIC, group=BURYING_GROUP) as consumer:
                consumer.bury(*consumer.receive(1))

        with repeated(load, LOAD_INTERVAL_S):
            yield


@contextmanager
def copies_loaded(made: Site) -> Iterator[None]:
    """Send messages to the leader of copies within the block."""
    with (
        connect(commitlog=made.services["commitlog-a"].target) as client,
        client.producer() as producer,
        repeated(lambda: producer.send(TOPIC, b"a message").result(LIMIT_S), LOAD_INTERVAL_S),
    ):
        yield
