# SPDX-License-Identifier: Apache-2.0
"""ConsoleConfig: every setting of the console, with its unit. Values only: bounds are checked at loading."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from libs.importance import Advanced, Basic
from libs.service_names import PORTS
from libs.shards.shards_file import Shard

Positive = Annotated[int, Meta(ge=1)]
HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleConfig:
    """Settings of the console. A console keeps no state: any number of consoles may show a store."""

    store_target: Basic[str] = ""
    """Address of the store, as host:port, or several with commas between: that of a gateway, which serves all APIs. It
    is the address of each service without its own address."""

    commitlog_target: Basic[str | None] = None
    """Address of the CommitLog, as host:port; of several logs all addresses, with commas between. Without it that of
    the store, else 127.0.0.1:7101."""

    indexer_target: Basic[str | None] = None
    """Address of the Indexer, or several with commas between. Without it that of the store, else 127.0.0.1:7102."""

    janitor_target: Basic[str | None] = None
    """Address of the Janitor. Without it that of the store, else 127.0.0.1:7103."""

    delivery_target: Basic[str | None] = None
    """Address of Delivery, or several with commas between; empty for a store without Delivery. Without it that of the
    store, else 127.0.0.1:7104."""

    gateway_target: Advanced[str | None] = None
    """Address of the gateway, or several with commas between: its connections and audit lines are shown, too. Without
    it that of the store, else none."""

    shards_file: Basic[Path | None] = None
    """The gateway's file that names the shards of the store (docs/scale.md). Pages then show a shard at a time, and
    commitlog_target, indexer_target, janitor_target and delivery_target have no effect. Read once, at the start."""

    store_ca_file: Basic[Path | None] = None
    """PEM file with the authorities that signed the certificates of the store's services; without it calls have no
    TLS."""

    store_certificate_file: Advanced[Path | None] = None
    """PEM file with the certificate that the console shows to the store's services."""

    store_key_file: Advanced[Path | None] = None
    """PEM file with the private key of that certificate."""

    store_token_file: Basic[Path | None] = None
    """File with the token that the console shows to the store's services. Its rights decide the content of the pages;
    the rights of a client are enough. Without it the console shows no token."""

    login_token_file: Basic[Path | None] = None
    """File with the tokens that open the console, a token a line: browsers ask for it, programs send it as a bearer
    token. Beyond loopback it is required, unless tls_client_ca_file asks for certificates, or login_header
    names readers."""

    login_header: Advanced[str] = ""
    """Header in which a proxy with a login of its own (OIDC) names the reader, for example X-Auth-Request-Email. It
    counts only in requests of trusted_proxies; these then need no token."""

    trusted_proxies: Advanced[str] = ""
    """Addresses or networks of proxies, with commas between. Only they may name a reader (login_header), the
    reader's address (X-Forwarded-For) and that the reader uses TLS (X-Forwarded-Proto)."""

    allow_anonymous: Advanced[bool] = False
    """Listen beyond loopback without a login all the same. Every program that reaches the port can then see the
    pages."""

    allowed_hosts: Advanced[str] = ""
    """Names by which browsers may address the console, with commas between, beside listen_host and the names of this
    machine. Requests for other hosts are refused: another site can't reach the console through a name of its own."""

    allow_actions: Basic[bool] = False
    """Let readers change the store, after a preview and a confirmation: move and pause groups, replay dead letters,
    cancel delayed messages, end transactions. The rights of store_token_file decide which of these are possible."""

    hide_bodies: Basic[bool] = False
    """Show no bodies of messages; their sizes and properties are shown."""

    masked_fields: Basic[str] = ""
    """Names of fields in JSON bodies and of properties, with commas between, in lower or upper case: the console shows
    no values of them, and no bodies that are no JSON. KEYS and TAGS are names, too. Searches and conditions by them are
    refused."""

    history_count_max: Advanced[Annotated[int, Meta(ge=0, le=1_000)]] = 50
    """Topics, and as many groups, whose last 24 hours the console remembers: 0.07 MB for each topic and 0.1 MB for each
    group. 0 remembers none. A restart forgets them."""

    store_timeout_ms: Advanced[Positive] = 3_000
    """Longest wait, in milliseconds, for an answer of the store. A page then names the missing answer."""

    connection_count_max: Advanced[Positive] = 256
    """Connections of browsers at once. The connection that waits longest for a request makes room for another; while
    all have requests, further requests get status 503."""

    page_count_max: Advanced[Positive] = 16
    """Pages that are made at once; further requests wait, and get status 503 after two seconds."""

    tail_count_max: Advanced[Positive] = 32
    """Live tails of topics at once; further browsers ask for new messages every few seconds."""

    @property
    def targets(self) -> dict[str, str]:
        """The addresses of each service, and of the gateway."""
        usual = {name: self.store_target or f"127.0.0.1:{port}" for name, port in PORTS.items()}
        usual["gateway"] = self.store_target
        own = {name: getattr(self, f"{name}_target") for name in usual}
        return usual | {name: target for name, target in own.items() if target is not None}

    def targets_of(self, shard: Shard) -> dict[str, str]:
        """Return the addresses of the services of a shard, and of the gateway."""
        return self.targets | {name: getattr(shard, name) for name in PORTS}

    def __post_init__(self) -> None:
        networks_of(self.trusted_proxies)
        if self.login_header and HEADER.fullmatch(self.login_header) is None:
            raise ValueError(f"login_header is {self.login_header!r}: it must be letters, digits and hyphens")
        if self.login_header and not self.trusted_proxies:
            raise ValueError("login_header needs trusted_proxies: anybody could send the header")


def networks_of(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the networks of trusted_proxies. Raises ValueError."""
    found = []
    for name in (part.strip() for part in text.split(",") if part.strip()):
        try:
            network = ip_network(name)
        except ValueError as error:
            raise ValueError(
                f"trusted_proxies is {text!r}: {name!r} must be an address or a network, for example 10.1.2.0/24"
            ) from error
        if network.prefixlen == 0:
            raise ValueError(f"trusted_proxies is {text!r}: {name!r} is every address")
        found.append(network)
    return tuple(found)
