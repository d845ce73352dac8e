# SPDX-License-Identifier: Apache-2.0
"""ConsoleConfig: every setting of the console, with its unit. Values only: bounds are checked at loading."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from libs.importance import Advanced, Basic

Positive = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleConfig:
    """Settings of the console. A console keeps no state: any number of consoles may show a store."""

    commitlog_target: Basic[str] = "127.0.0.1:7101"
    """Address of the CommitLog, as host:port; of several logs all addresses, with commas between."""

    indexer_target: Basic[str] = "127.0.0.1:7102"
    """Address of the Indexer, or several with commas between."""

    janitor_target: Basic[str] = "127.0.0.1:7103"
    """Address of the Janitor."""

    delivery_target: Basic[str] = "127.0.0.1:7104"
    """Address of Delivery, or several with commas between; empty for a store without Delivery."""

    store_ca_file: Basic[Path | None] = None
    """PEM file with the authorities that signed the certificates of the store's services; without it calls have no
    TLS."""

    store_certificate_file: Advanced[Path | None] = None
    """PEM file with the certificate that the console shows to the store's services."""

    store_key_file: Advanced[Path | None] = None
    """PEM file with the private key of that certificate."""

    store_token_file: Basic[Path | None] = None
    """File with the token that the console shows to the store's services. Its rights decide what the pages show; the
    rights of a client are enough. Without it the console shows no token."""

    login_token_file: Basic[Path | None] = None
    """File with the tokens that open the console, one a line: browsers ask for it, programs send it as bearer token.
    Beyond loopback it is required, unless tls_client_ca_file asks for certificates."""

    allowed_hosts: Advanced[str] = ""
    """Names by which browsers may address the console, with commas between, beside listen_host and the names of this
    machine. Requests for other hosts are refused: another site can't reach the console through a name of its own."""

    hide_bodies: Basic[bool] = False
    """Show no bodies of messages; their sizes and properties are shown."""

    store_timeout_ms: Advanced[Positive] = 3_000
    """Longest wait, in milliseconds, for an answer of the store. A page then says what it could not ask."""

    connection_count_max: Advanced[Positive] = 256
    """Connections of browsers at once; further requests get status 503."""

    page_count_max: Advanced[Positive] = 16
    """Pages that are made at once; further requests wait, and get status 503 after two seconds."""

    tail_count_max: Advanced[Positive] = 32
    """Live tails of topics at once; further browsers ask for new messages every few seconds."""
