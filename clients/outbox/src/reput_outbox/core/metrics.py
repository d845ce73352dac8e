# SPDX-License-Identifier: Apache-2.0
"""RelayMetrics: the counters of a relay, and their text for Prometheus."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class RelayMetrics:
    """Counters since the relay's start."""

    sent_count: int = 0
    sent_bytes: int = 0
    batch_count: int = 0
    refused_count: int = 0
    """Refusals of rows, each attempt counted."""
    failure_count: int = 0
    """Failures of the database or the store after which the relay waited."""
    renewal_count: int = 0
    """New writers, because the store had a batch already or had forgotten the writer."""
    found_count: int = 0
    """Doubtful rows that the store had."""
    lost_batch_count: int = 0
    """Batches that the store had lost."""
    cleaned_count: int = 0
    is_holder: bool = False
    """Whether this relay sends. Others stand by."""

    def on_sent(self, row_count: int, size_bytes: int) -> None:
        """Count a batch."""
        self.sent_count += row_count
        self.sent_bytes += size_bytes
        self.batch_count += 1

    def text(self) -> str:
        """Return the metrics in the text format of Prometheus."""
        lines = []
        for field in fields(self):
            value = int(getattr(self, field.name))
            is_gauge = field.name == "is_holder"
            name = "reput_outbox_relay_" + (field.name if is_gauge else field.name.removesuffix("_count") + "_total")
            lines += [f"# TYPE {name} {'gauge' if is_gauge else 'counter'}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
