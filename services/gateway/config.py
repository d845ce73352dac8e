# SPDX-License-Identifier: Apache-2.0
"""GatewayConfig: every setting of the gateway, with its unit. Values only; bounds are checked when they are loaded."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from libs.formats.limits import BODY_SIZE_BYTES_MAX

Positive = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """Settings of the gateway. It keeps nothing: any number of them may serve one store."""

    access_keys_file: Path | None = None
    """File with the access keys of clients: in each line a key, a space and its secret. Nobody else may read it
    (chmod 600, or 640 for its group). Without it clients need none."""

    auto_create_topics: bool = False
    """Make a topic when a client first asks where it is. Without it, as before RocketMQ's proxy, a topic is made by
    administration (`reput topics create`), and a client that names another hears TOPIC_NOT_FOUND."""

    once: bool = False
    """Store what a client sends again under the id of a message once; the CommitLog's `once_count_max` says how many
    ids are remembered. Each message is an append of its own then, not one of many in a call of the kernel."""

    body_size_bytes_max: Annotated[int, Meta(ge=1, le=BODY_SIZE_BYTES_MAX)] = BODY_SIZE_BYTES_MAX
    """Largest body that producers are told to send; no more than the store's largest message."""

    inflated_size_bytes_max: Positive = 16 << 20
    """Largest body that a compressed one becomes. A larger one is handed out as it is stored, and refused from
    producers. RocketMQ's producers compress bodies of 4 MiB at most."""

    renewal_count_max: Positive = 100_000
    """Messages that push consumers work on and that are kept theirs, at once; some 500 bytes each. Further ones are
    theirs for a minute."""

    client_stream_count_max: Positive = 3_000
    """Clients that have a stream open at once; some 14 KiB each. Further ones are told TOO_MANY_REQUESTS; they need
    another gateway."""

    reconnect_ms_max: Positive = 2_000
    """Longest wait between two attempts to reach the CommitLog or Delivery, in milliseconds."""
