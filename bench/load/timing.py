# SPDX-License-Identifier: Apache-2.0
"""The output of a load generator: counts, seconds, percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load. Only acknowledged messages count."""

    message_count: int
    size_bytes: int
    duration_s: float
    latencies_s: Sequence[float] = ()

    @property
    def messages_per_s(self) -> float:
        """Acknowledged messages per second."""
        return self.message_count / self.duration_s

    def document(self) -> dict[str, object]:
        """Return the line that is printed."""
        document: dict[str, object] = {
            "messages": self.message_count,
            "bytes": self.size_bytes,
            "seconds": self.duration_s,
        }
        if self.latencies_s:
            document["latencies_ms"] = percentiles_ms(self.latencies_s)
        return document


def percentiles_ms(latencies_s: Sequence[float]) -> dict[str, float]:
    """Return percentiles by nearest rank, in milliseconds."""
    ordered = sorted(latencies_s)
    last = len(ordered) - 1
    return {name: ordered[round(share * last)] * 1e3 for name, share in PERCENTILES.items()}
