# SPDX-License-Identifier: Apache-2.0
"""The options before every command: the addresses of the services, and how to reach them."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from libs.runtime.version import VERSION

        typer.echo(f"reput {VERSION}")
        raise typer.Exit


def connection_options(
    context: typer.Context,
    context_name: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="The store with this name (`reput context add`).")
    ] = None,
    store: Annotated[
        str | None,
        _option("HOST:PORT", "The store: gateways (a,b,…), which serve all APIs; also REPUT_CLIENT_STORE_TARGET."),
    ] = None,
    shard: Annotated[
        str | None, _option("NAME", "The shard, if --store has several (docs/scale.md); also REPUT_CLIENT_SHARD.")
    ] = None,
    commitlog: Annotated[
        str | None, _option("HOST:PORT", "CommitLogs (a,b,…); also REPUT_CLIENT_COMMITLOG_TARGET.")
    ] = None,
    indexer: Annotated[str | None, _option("HOST:PORT", "Indexers (a,b,…); also REPUT_CLIENT_INDEXER_TARGET.")] = None,
    janitor: Annotated[str | None, _option("HOST:PORT", "The Janitor; also REPUT_CLIENT_JANITOR_TARGET.")] = None,
    delivery: Annotated[str | None, _option("HOST:PORT", "Delivery; also REPUT_CLIENT_DELIVERY_TARGET.")] = None,
    ca_file: Annotated[
        str | None, _option("FILE", "Authorities, turns TLS on ('system': gRPC's own); REPUT_CLIENT_CA_FILE.")
    ] = None,
    certificate_file: Annotated[
        str | None, _option("FILE", "Certificate of the client; REPUT_CLIENT_CERTIFICATE_FILE.")
    ] = None,
    key_file: Annotated[str | None, _option("FILE", "Its private key; REPUT_CLIENT_KEY_FILE.")] = None,
    token_file: Annotated[
        Path | None,
        _option("FILE", "File with a token; REPUT_CLIENT_TOKEN_FILE. [default, on this machine: its user's]"),
    ] = None,
    timeout: Annotated[float | None, _option("SECONDS", "Longest time of a call. [default: 30]")] = None,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version of Reput and exit."),
    ] = False,
) -> None:
    """RocketMQ's message store as gRPC services: run the services, append messages, read and manage the store."""
    del version  # its callback has done it
    token = _token_of(token_file) if token_file is not None else None
    context.obj = {
        "context": context_name,
        "store": store,
        "shard": shard,
        "commitlog": commitlog,
        "indexer": indexer,
        "janitor": janitor,
        "delivery": delivery,
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "token": token,
        "timeout_s": timeout,
    }


def _token_of(file: Path) -> str:
    """Return the first token of a file, and warn if other users can read the file."""
    from libs.runtime.trust.exposure import open_mode

    if (mode := open_mode(file)) is not None:
        typer.echo(f"warning: other users can read {file} (its mode is {mode:o}): chmod 600 {file}", err=True)
    return next(iter(file.read_text(encoding="utf-8").split()), "")
