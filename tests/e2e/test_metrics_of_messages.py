# SPDX-License-Identifier: Apache-2.0
"""What happens to messages is in the metrics: acknowledgements, syncs, settlements, dead letters and refusals."""

import urllib.request
from pathlib import Path

import pytest
from grpc.aio import AioRpcError
from prometheus_client.parser import text_string_to_metric_families
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK

from libs.machine.durations import BUCKETS_S
from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.delivery_stack import GROUP, TOPIC, Stack
from tests.support.surroundings import free_port

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def test_what_happens_to_messages(tmp_path: Path) -> None:
    """Each outcome counts once, under the labels of the durability, the group and the reason."""
    log_port, delivery_port = free_port(), free_port()
    async with (
        served_commitlog.process(tmp_path, "--metrics-port", str(log_port)) as commitlog,
        commitlog.client() as log,
        served_indexer.served(tmp_path, f"127.0.0.1:{commitlog.port}") as (indexer, index),
        served_delivery.process(
            f"127.0.0.1:{commitlog.port}",
            f"127.0.0.1:{indexer.server.port}",
            *("--metrics-port", str(delivery_port)),
        ) as delivery,
        served_delivery.client_of(f"127.0.0.1:{delivery.port}") as client,
    ):
        stack = Stack(log, index, client)
        await stack.append(b"good", b"bad", queue_id=1)
        request = append_pb.AppendRequest(
            messages=[append_pb.AppendMessage(topic=TOPIC, body=b"late")], durability=DURABILITY_LOCAL_DISK
        )
        responses = log.append.AppendStream(iter([request, append_pb.AppendRequest()]))
        outcomes = [outcome async for response in responses for outcome in response.outcomes]
        assert [outcome.HasField("error") for outcome in outcomes] == [False, True]
        with pytest.raises(AioRpcError):
            await log.append.Append(append_pb.AppendRequest())
        good, bad, _ = await stack.receive(3)
        await stack.settle("ack", good)
        await stack.settle("ack", good)  # repeated
        await stack.settle("bury", bad)
        of_log, of_delivery = _samples(log_port), _samples(delivery_port)
    name = "reput_commitlog_append_acknowledgement_seconds"
    assert _value(of_log, f"{name}_count", durability="local_disk") >= 1
    assert _value(of_log, f"{name}_sum", durability="local_disk") > 0
    assert _value(of_log, f"{name}_count", durability="memory") >= 1
    assert _value(of_log, f"{name}_bucket", durability="memory", le=str(BUCKETS_S[0])) >= 1
    assert _value(of_log, "reput_commitlog_sync_seconds_count") >= 1
    refusals = "reput_commitlog_rpc_refusals_total"
    assert _value(of_log, refusals, code="INVALID_ARGUMENT", reason="BATCH_EMPTY") == 2
    assert _value(of_delivery, "reput_delivery_settle_seconds_count") == 1
    assert _value(of_delivery, "reput_delivery_dead_letter_messages_total", group=GROUP) == 1


def _samples(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        families = text_string_to_metric_families(page.read().decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value for found in families for sample in found.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]
