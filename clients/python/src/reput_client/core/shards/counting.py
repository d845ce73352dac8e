# SPDX-License-Identifier: Apache-2.0
"""Values that both producers over shards make from the producers of the shards: counters, lingers and outages."""

from collections.abc import Callable, Iterable, Sequence

from reput_client.core.errors import ReputError, UnavailableError
from reput_client.core.shards.routing import Routing
from reput_client.core.telemetry.metrics import Latencies, ProducerMetrics

Hurry = Callable[[], None]
"""Ends the linger of a batch."""


def all_of(hurries: Sequence[Hurry]) -> Hurry | None:
    """Return a function that calls all functions. None without a function."""
    if len(hurries) <= 1:
        return hurries[0] if hurries else None

    def hurry() -> None:
        for one in hurries:
            one()

    return hurry


def is_away(error: ReputError) -> bool:
    """Return whether an error of a call to a shard shows that the shard can't be reached."""
    return isinstance(error, UnavailableError) or not error.reason


def metrics_of(routing: Routing, parts: Iterable[ProducerMetrics]) -> ProducerMetrics:
    """Return the counters of a producer over shards. A message that a sealed queue refused has not failed."""
    metrics = list(parts)
    return ProducerMetrics(
        message_count=routing.added_count,
        acknowledged_message_count=sum(one.acknowledged_message_count for one in metrics),
        acknowledged_bytes=sum(one.acknowledged_bytes for one in metrics),
        failed_message_count=routing.failed_count,
        waiting_message_count=routing.unsettled_count,
        waiting_bytes=routing.unsettled_bytes,
        request_count=sum(one.request_count for one in metrics),
        retried_request_count=sum(one.retried_request_count for one in metrics),
        latencies=Latencies(tuple(map(sum, zip(*(one.latencies.counts for one in metrics), strict=True)))),
    )
