# SPDX-License-Identifier: Apache-2.0
"""The registry of all metrics of a process. It is loaded with prometheus_client when metrics are first reported."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.registry import Collector


class Source(Protocol):
    """Families of metrics."""

    def collect(self) -> Iterator[Metric]:
        """Yield the families with their present values."""


class _All(Collector):
    """The families of all sources, also of sources that are added later."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for source in list(self._sources):
            yield from source.collect()


def registry_of(sources: Sequence[Source]) -> CollectorRegistry:
    """Return a registry with the families of these sources and of the process."""
    registry = CollectorRegistry()
    for collector in (_All(sources), ProcessCollector(registry=None)):
        registry.register(collector)
    return registry
