# SPDX-License-Identifier: Apache-2.0
"""Numbers of producers."""

import pytest
from reput_client import Latencies, NewMessage, ProducerOptions, RetryPolicy, aio, connect

from clients.python.tests.support import LIMIT_S, Log, serving

QUICK = RetryPolicy(delay_min_s=0.01, delay_max_s=0.02)


def refuse_bad(number: int, messages: list) -> object:
    """Break the first stream, refuse batches with a bad message."""
    if number == 0:
        return ConnectionError()
    if any(message.queue_id == 9 for message in messages):
        return _refusal()
    return None


def _refusal() -> object:
    import grpc

    from clients.python.tests.support import status

    return status(grpc.StatusCode.INVALID_ARGUMENT, "QUEUE_OUT_OF_RANGE", field="messages[0].queue_id")


@pytest.mark.parametrize("is_async", [False, True])
async def test_producer(is_async: bool) -> None:
    """Counters of messages that were sent, stored, refused, sent again, and that wait."""
    log = Log(refuse_bad)
    log.gate.clear()
    messages = [NewMessage("t", b"x", queue_id=queue_id) for queue_id in (9, 0, 1)]
    options = ProducerOptions(retry=QUICK, linger_ms=0)
    with serving(log) as target:
        if is_async:
            async with aio.connect(commitlog=target) as client:
                producer = client.producer(options)
                outcomes = await producer.send_batch(messages)
                waiting = producer.metrics()
                log.gate.set()
                await outcomes
                metrics = producer.metrics()
        else:
            with connect(commitlog=target) as client:
                producer = client.producer(options)
                outcomes = producer.send_batch(messages)
                waiting = producer.metrics()
                log.gate.set()
                outcomes.result(LIMIT_S)
                metrics = producer.metrics()
    assert (waiting.message_count, waiting.waiting_message_count, waiting.acknowledged_message_count) == (3, 3, 0)
    assert waiting.waiting_bytes > 3
    assert (metrics.message_count, metrics.acknowledged_message_count, metrics.failed_message_count) == (3, 2, 1)
    assert (metrics.waiting_message_count, metrics.waiting_bytes) == (0, 0)
    assert (metrics.request_count, metrics.retried_request_count) == (len(log.batch_sizes), 1)
    assert 0 < metrics.acknowledged_bytes < waiting.waiting_bytes
    assert sum(metrics.latencies.counts) == 2
    assert metrics.latencies.percentile_ms(99) >= 10 / 2


def test_percentiles() -> None:
    """The bound that so many messages kept."""
    counts = Latencies((0, 50, 0, 49, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1))
    assert [counts.percentile_ms(percent) for percent in (0, 1, 50, 51, 99, 100)] == [2, 2, 2, 10, 10, float("inf")]
    assert Latencies((0, 0)).percentile_ms(99) == 0
    with pytest.raises(ValueError, match="percent is 101"):
        counts.percentile_ms(101)
