# SPDX-License-Identifier: Apache-2.0
"""`reput context …`: named stores."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.connection.addresses import check_target
from cli.connection.contexts import read_contexts, write_contexts
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, note_line
from cli.output.tables import print_fields, print_rows
from libs.service_names import BESIDE, PORTS, STORE_PORT

context = command_group("Named stores: their addresses and how to reach them.")

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
COLUMNS = (
    "name",
    "is_used",
    "store",
    "commitlog",
    "indexer",
    "janitor",
    "delivery",
    "gateway",
    "has_tls",
    "token_file",
)
SYSTEM = "system"
"""The value for authorities that are not in a file."""

NameArgument = Annotated[str, typer.Argument(help="Name of the context.")]


def _address(text: str) -> Any:
    return typer.Option(metavar="HOST:PORT", help=text)


def _file(text: str) -> Any:
    return typer.Option(metavar="FILE", help=text)


@context.command("add")
def add(
    name: NameArgument,
    store: Annotated[str | None, _address("The store: gateways (a,b,…), which serve all APIs.")] = None,
    commitlog: Annotated[str | None, _address("CommitLogs (a,b,…).")] = None,
    indexer: Annotated[str | None, _address("Indexers (a,b,…).")] = None,
    janitor: Annotated[str | None, _address("The Janitor.")] = None,
    delivery: Annotated[str | None, _address("Deliveries (a,b,…).")] = None,
    gateway: Annotated[str | None, _address("Gateways (a,b,…).")] = None,
    ca_file: Annotated[str | None, _file("Authorities, turns TLS on ('system': gRPC's own).")] = None,
    certificate_file: Annotated[str | None, _file("Certificate of the client.")] = None,
    key_file: Annotated[str | None, _file("Its private key.")] = None,
    token_file: Annotated[str | None, _file("File with a token.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Give a store a name. An option that is not given has its default.

    The context has only the paths of a token and a private key. Paths may be relative, and are stored as absolute
    paths.

    Example: reput context add shop --store store.example:8081
    """
    if not re.fullmatch(NAME, name):
        raise typer.BadParameter(f"{name!r}: a name has 1 to 63 letters, digits, '.', '_' and '-'", param_hint="NAME")
    values: dict[str, str] = {}
    given = {
        "store": store, "commitlog": commitlog, "indexer": indexer, "janitor": janitor, "delivery": delivery,
        "gateway": gateway,
    }  # fmt: skip
    ports = {"store": STORE_PORT} | PORTS | {service: port for service, (_, port) in BESIDE.items()}
    for service, targets in given.items():
        for target in targets.split(",") if targets is not None else ():
            check_target(target.strip(), flag=f"--{service}", port=ports[service])
        if targets is not None:
            values[service] = targets
    files = {
        "ca_file": ca_file, "certificate_file": certificate_file, "key_file": key_file, "token_file": token_file
    }  # fmt: skip
    values |= {key: _absolute(key, file) for key, file in files.items() if file is not None}
    if (certificate_file is None) != (key_file is None):
        raise typer.BadParameter("--certificate-file and --key-file need each other")
    if certificate_file is not None and ca_file is None:
        raise typer.BadParameter("--certificate-file needs --ca-file, which turns TLS on")
    contexts = read_contexts()
    if name in contexts.stores:
        text = f"there is a context {name} already: `reput context remove {name}` first"
        raise CommandFailed("CONTEXT_EXISTS", text, code=ExitCode.REFUSED)
    contexts.stores[name] = values
    write_contexts(contexts)
    note_line(f"`reput --context {name} status` asks it; `reput context use {name}` has all commands ask it")
    print_fields({"name": name, **values}, as_json=as_json)


def _absolute(key: str, file: str) -> str:
    """Return the path of a file that is there. Raises BadParameter."""
    if key == "ca_file" and file == SYSTEM:
        return file
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise typer.BadParameter(f"{str(path)!r} is no file", param_hint=f"--{key.replace('_', '-')}")
    return str(path)


@context.command("use")
def use(
    name: Annotated[str, typer.Argument(help="Name of the context. [default: none]", show_default=False)] = "",
    as_json: JsonOption = False,
) -> None:
    """Use this store for all commands from now on, unless options or variables name another store.

    Example: reput context use shop
    """
    contexts = read_contexts()
    if name:
        contexts.store(name)
    contexts.used = name
    write_contexts(contexts)
    print_fields({"used": name or None}, as_json=as_json)


@context.command("list")
def list_contexts(as_json: JsonOption = False) -> None:
    """List contexts by name, and show the context in use.

    Example: reput context list
    """
    contexts = read_contexts()
    rows = (
        {"name": name, "is_used": name == contexts.used, "has_tls": "ca_file" in store, **store}
        for name, store in sorted(contexts.stores.items())
    )
    print_rows(rows, COLUMNS, as_json=as_json, spare=("token_file", "gateway", "delivery", "janitor"))


@context.command("remove")
def remove(name: NameArgument, as_json: JsonOption = False) -> None:
    """Remove a context. Its store and its files stay as they are.

    Example: reput context remove shop
    """
    contexts = read_contexts()
    contexts.store(name)
    del contexts.stores[name]
    contexts.used = "" if contexts.used == name else contexts.used
    write_contexts(contexts)
    print_fields({"removed": name}, as_json=as_json)
