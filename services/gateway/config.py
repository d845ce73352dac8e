# SPDX-License-Identifier: Apache-2.0
"""GatewayConfig: every setting of the gateway, with its unit. Values only: bounds are checked at loading."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from libs.formats.limits import BODY_SIZE_BYTES_MAX
from libs.importance import Advanced, Basic

Positive = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """Settings of the gateway. A gateway keeps no state: any number of gateways may serve a store."""

    access_keys_file: Basic[Path | None] = None
    """File with the access keys of clients: in each line a key, a space and its secret. No other user may read it
    (chmod 600, or 640 for its group). Without it clients need no key."""

    auto_create_topics: Basic[bool] = False
    """Make a topic when a client first asks for its route. Without it, as with RocketMQ's proxy, an administrator makes
    topics (`reput topics create`), and a client that names an unknown topic gets TOPIC_NOT_FOUND."""

    once: Basic[bool] = False
    """Store a message once, even if a client sends it again with the same message id. The CommitLog's `once_count_max`
    is the number of ids that are kept. With this setting each message is an append of its own; otherwise many messages
    share a call of the kernel."""

    shards_file: Basic[Path | None] = None
    """File that names the shards of the store, in TOML: a table [shards.NAME] for each, with the addresses `commitlog`,
    `indexer`, `delivery` and `janitor` (docs/scale.md). With it commitlog_target, delivery_target and so on have no
    effect. Read once, at the start."""

    door: Basic[Literal["auto", "on", "off"]] = "auto"
    """Serve the APIs of the CommitLog, the Indexer, Delivery and the Janitor on the gateway's port, too; auto is on,
    and off with access_keys_file, because only the services' own tokens and rights guard these APIs."""

    body_size_bytes_max: Basic[Annotated[int, Meta(ge=1, le=BODY_SIZE_BYTES_MAX)]] = BODY_SIZE_BYTES_MAX
    """Largest body that producers may send, as the gateway tells them; no more than the store's largest message."""

    inflated_size_bytes_max: Advanced[Positive] = 16 << 20
    """Largest size of a compressed body after decompression. A larger body is delivered as it is stored, and refused
    from producers. RocketMQ's producers compress bodies of 4 MiB at most."""

    renewal_count_max: Advanced[Positive] = 100_000
    """Messages of push consumers that the gateway renews at once, while the consumers process them; some 500 bytes
    each. Further messages are the consumer's for a minute only."""

    client_stream_count_max: Advanced[Positive] = 3_000
    """Clients that have a stream open at once; some 14 KiB each. Further clients get TOO_MANY_REQUESTS; they need
    another gateway."""

    reconnect_ms_max: Advanced[Positive] = 2_000
    """Longest wait between two attempts to reach the CommitLog or Delivery, in milliseconds."""
