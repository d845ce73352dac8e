# SPDX-License-Identifier: Apache-2.0
"""Delivery as a child process, and stubs for it."""

import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from reput.delivery.v1 import (
    dead_letter_service_pb2_grpc,
    delay_service_pb2_grpc,
    delivery_service_pb2_grpc,
    group_service_pb2_grpc,
    transaction_service_pb2_grpc,
)

from tests.support.service_process import ServiceProcess
from tests.support.trusted import trusted


class Client:
    """Stubs of all services of a Delivery."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.deliveries = delivery_service_pb2_grpc.DeliveryServiceStub(channel)
        self.delays = delay_service_pb2_grpc.DelayServiceStub(channel)
        self.groups = group_service_pb2_grpc.GroupServiceStub(channel)
        self.letters = dead_letter_service_pb2_grpc.DeadLetterServiceStub(channel)
        self.transactions = transaction_service_pb2_grpc.TransactionServiceStub(channel)


@contextlib.asynccontextmanager
async def client_of(target: str) -> AsyncIterator[Client]:
    """Stubs for a Delivery."""
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
    async with trusted(grpc.aio.insecure_channel(target, options=options)) as channel:
        yield Client(channel)


class Process(ServiceProcess):
    """Delivery as a child."""

    service = "delivery"
    has_files = False


@contextlib.asynccontextmanager
async def process(commitlog_target: str, indexer_target: str, *flags: str) -> AsyncIterator[Process]:
    """A child that serves, and is killed at the end of the block if it still runs."""
    targets = ("--commitlog-target", commitlog_target, "--indexer-target", indexer_target)
    child = await Process.start(Path(), *targets, *flags)
    try:
        yield await child.wait_serving()
    finally:
        if child.child.returncode is None:
            await child.end(signal.SIGKILL)
