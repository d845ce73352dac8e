# SPDX-License-Identifier: Apache-2.0
"""`reput up`: a whole store on this machine, or several copies: processes on loopback, a directory per copy."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from cli.copies import (
    COPY_COUNT_MAX,
    REPLICA_IDS,
    SHARD_NAMES,
    Copy,
    chosen_ports,
    copies_of,
    shards_of,
    targets_of,
    write_shards,
)
from cli.exit_codes import ExitCode
from cli.free_ports import HOST
from cli.launcher import LauncherEnded
from cli.output.lines import JsonOption, error_line, print_json, warning_line
from cli.supervisor import Child, ChildEnded, Supervisor
from libs.runtime.errors import ConfigError
from libs.runtime.trust.tokens import ensure_local_token, is_loopback

CONSOLE, GATEWAY = "console", "gateway"
CONSOLE_PACKAGES = ("jinja2", "starlette", "uvicorn")
TRUST_SETTINGS = ("token_file", "operator_token_file", "rights_file", "tls_client_ca_file")
"""Settings with which a service tells callers apart, or knows another operator's token."""
ReplicasOption = Annotated[
    int, typer.Option(min=1, max=len(REPLICA_IDS), metavar="N", help="Copies of the store, for trials.")
]
ShardsOption = Annotated[
    int,
    typer.Option(min=1, max=len(SHARD_NAMES), metavar="N", help="Shards: stores that share topics (docs/scale.md)."),
]
ConsoleOption = Annotated[
    bool, typer.Option("--console/--no-console", help="Run the console: pages about the store, on this machine.")
]
DeliveryOption = Annotated[
    bool, typer.Option("--delivery/--no-delivery", help="Run Delivery: sharing groups, delays and transactions.")
]
GatewayOption = Annotated[
    bool, typer.Option("--gateway/--no-gateway", help="Run the gateway: all APIs at one port, and RocketMQ's.")
]
EtcdOption = Annotated[
    str | None, typer.Option("--etcd", metavar="HOST:PORT", help="etcd for the election of a leader (a,b,…).")
]
MetricsOption = Annotated[
    bool, typer.Option("--metrics/--no-metrics", help="Open the Prometheus endpoints on ports 7201 to 7206.")
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--listen-host",
        metavar="HOST",
        help="Address on which all services listen; beyond loopback they need TLS, or allow_insecure. "
        "[default: each service's setting listen_host, 127.0.0.1 if there is none]",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--allow-insecure",
        help="Listen beyond loopback without TLS: every program that reaches the ports can read and write.",
    ),
]


def port_option(service: str) -> Any:
    """Return the option of a service's port."""
    return typer.Option(min=0, max=65535, envvar=f"REPUT_{service}_PORT", help="Port; 0 takes any free one.")


def up(
    data_dir: Annotated[
        Path, typer.Option(envvar="REPUT_DATA_DIR", metavar="DIR", help="Directory of the store; made if missing.")
    ] = Path("reput-data"),
    commitlog_port: Annotated[int, port_option("COMMITLOG")] = 7101,
    indexer_port: Annotated[int, port_option("INDEXER")] = 7102,
    janitor_port: Annotated[int, port_option("JANITOR")] = 7103,
    delivery_port: Annotated[int, port_option("DELIVERY")] = 7104,
    listen_host: HostOption = None,
    allow_insecure: InsecureOption = False,
    gateway_port: Annotated[int, port_option("GATEWAY")] = 8081,
    console_port: Annotated[int, port_option("CONSOLE")] = 7300,
    console: ConsoleOption = True,
    delivery: DeliveryOption = True,
    gateway: GatewayOption = True,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file with a table for each service.")
    ] = None,
    metrics: MetricsOption = True,
    replicas: ReplicasOption = 1,
    shards: ShardsOption = 1,
    etcd: EtcdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all services over one directory until Ctrl-C, SIGTERM, or the end of the terminal (SIGHUP).

    Each service stops cleanly, however often SIGTERM comes; a Ctrl-C during the stop kills the remaining services.
    Below nohup the end of the terminal stops nothing.

    All APIs are at 127.0.0.1:8081, the port of the gateway, which needs Delivery. If it can't start there, the store
    runs without it.

    The console is at http://127.0.0.1:7300, if its packages are installed (pip install 'reput-server[console]').

    It prints `ready` when all services answer and the indexes are complete.

    With --replicas 3 there are three logs, each with services of its own, in DIR/a, DIR/b and DIR/c and on ports
    ten apart. The first log leads, unless --etcd lets them elect a leader. A killed service is started again. It shows
    how replication works; as all logs are on the same machine, it protects from little.

    With --shards 3 there are three stores, in DIR/a, DIR/b and DIR/c, and a gateway that sends each message to the
    shard of its queue. DIR/shards.toml names them, also for `reput shards`. The console shows a shard at a time.
    With --replicas, too, each shard has so many copies, in DIR/a/a, DIR/a/b and so on, ten in all at most.

    Settings of a service come from REPUT_COMMITLOG_…, REPUT_INDEXER_… and so on, or from --config. Logs are written to
    standard error. If a service fails, the others are stopped, and the exit code is that of the service.

    Example: reput up --data-dir reput-data
    """
    ports = {"commitlog": commitlog_port, "indexer": indexer_port, "janitor": janitor_port, "delivery": delivery_port}
    ports = {name: port for name, port in ports.items() if delivery or name != "delivery"}
    if etcd and replicas == 1:
        raise typer.BadParameter("one copy elects nobody: use it with --replicas", param_hint="--etcd")
    if shards > 1:
        _check_shards(shards, replicas, delivery=delivery, gateway=gateway)
    hosts = listen_hosts(ports, listen_host, config)
    found = _stores(data_dir, ports, hosts, shards=shards, replicas=replicas, etcd=etcd)
    copies = [replace(copy, is_insecure=allow_insecure) for copy in found]
    children = [child for copy in copies for child in copy.children(config, metrics=metrics)]
    places = ["--shards-file", str(write_shards(copies, data_dir))] if shards > 1 else _targets(copies)
    if gateway and delivery:
        children.append(gateway_child(copies[0], places, gateway_port, listen_host, config, metrics=metrics))
    if console:
        places += ["--gateway-target", children[-1].target] if shards > 1 else []
        children += console_children(copies[0], places, console_port, config, metrics=metrics)
    raise typer.Exit(asyncio.run(_run(copies, children, data_dir, as_json=as_json)))


def _stores(
    data_dir: Path,
    ports: Mapping[str, int],
    hosts: Mapping[str, str],
    *,
    shards: int,
    replicas: int,
    etcd: str | None,
) -> list[Copy]:
    """Return the shards, or the copies of the store, or the store."""
    if shards > 1:
        return shards_of(data_dir, ports, shards, hosts, replicas=replicas, etcd=etcd)
    if replicas > 1:
        return copies_of(data_dir, ports, etcd, replicas, hosts)
    return [Copy(data_dir, chosen_ports(ports), hosts)]


def _targets(copies: Sequence[Copy]) -> list[str]:
    """Return the flags that name the services of all copies, of which the leader's are used."""
    flags = []
    for name in copies[0].ports:
        flags += [f"--{name}-target", targets_of(copies, name)]
    return flags


def gateway_child(
    first: Copy, places: Sequence[str], port: int, listen_host: str | None, config: Path | None, *, metrics: bool
) -> Child:
    """Return the gateway. `places` are the flags that name what is behind it."""
    host = listen_hosts([GATEWAY], listen_host, config)[GATEWAY]
    place = replace(first, ports=chosen_ports({GATEWAY: port}), hosts={GATEWAY: host})
    flags = ["--config", str(config)] if config is not None else []
    flags += ["--allow-insecure", "true"] if place.is_insecure else []
    flags += ["--listen-host", host, "--port", str(place.ports[GATEWAY])]
    flags += places
    flags += [] if metrics else ["--metrics-port", "0"]
    return Child(GATEWAY, flags, place.target(GATEWAY), is_optional=True, shown=place.target(GATEWAY))


def console_children(
    first: Copy, places: Sequence[str], port: int, config: Path | None, *, metrics: bool
) -> list[Child]:
    """Return the console. It listens where its own settings say. `places` are the flags that name what it shows.

    Without its packages there is none, and a line says how to get them.
    """
    if any(importlib.util.find_spec(name) is None for name in CONSOLE_PACKAGES):
        note = "console: its packages are not installed: pip install 'reput-server[console]', or --no-console"
        print(note, file=sys.stderr, flush=True)
        return []
    host = listen_hosts([CONSOLE], None, config)[CONSOLE]
    place = Copy(first.data_dir, chosen_ports({CONSOLE: port}), {CONSOLE: host})
    flags = ["--config", str(config)] if config is not None else []
    flags += ["--listen-host", host, "--port", str(place.ports[CONSOLE])]
    flags += ["--delivery-target", ""] if "delivery" not in first.ports else []
    flags += places
    flags += [] if metrics else ["--metrics-port", "0"]
    flags += console_token(host, first.ports, config)
    return [Child(CONSOLE, flags, place.target(CONSOLE), is_optional=True, shown=f"http://{place.target(CONSOLE)}")]


def listen_hosts(names: Iterable[str], given: str | None, config: Path | None) -> dict[str, str]:
    """Return the host on which each service listens: from the flag, else its variable, else its table in the file."""
    tables = _tables(config)
    return {name: given or _setting(tables, name, "listen_host") or HOST for name in names}


def _tables(config: Path | None) -> Mapping[str, Any]:
    """Return the tables of the file with settings. The services themselves report its faults."""
    with contextlib.suppress(OSError, ValueError):
        return tomllib.loads(config.read_text(encoding="utf-8")) if config is not None else {}
    return {}


def _setting(tables: Mapping[str, Any], service: str, name: str) -> str:
    """Return a setting of a service as a text: its variable, else its value in the file, else nothing."""
    table = tables.get(service)
    in_file = table.get(name) if isinstance(table, dict) else None
    return os.environ.get(f"REPUT_{service.upper()}_{name.upper()}") or str(in_file or "")


def console_token(host: str, services: Iterable[str], config: Path | None) -> list[str]:
    """Return the flag that gives the console the token of this user, as the `reput` command of this user has it.

    Readers of the console then see what only operators may ask for. So it is given only where a program of this machine
    may read the store without a token anyway, on loopback, and where no setting says otherwise (decision 0105).
    """
    tables = _tables(config)
    is_open = not any(_setting(tables, service, name) for service in services for name in TRUST_SETTINGS)
    if not is_loopback(host) or not is_open or _setting(tables, CONSOLE, "store_token_file"):
        return []
    try:
        return ["--store-token-file", str(ensure_local_token())]
    except ConfigError:  # the services report it
        return []


def _check_shards(shards: int, replicas: int, *, delivery: bool, gateway: bool) -> None:
    if shards * replicas > COPY_COUNT_MAX:
        text = f"{shards} shards with {replicas} copies each are {shards * replicas}: at most {COPY_COUNT_MAX} in all"
        raise typer.BadParameter(text, param_hint="--replicas")
    if not delivery or not gateway:
        raise typer.BadParameter("shards need a gateway, and the gateway needs Delivery", param_hint="--shards")


def stop_at_signals(supervisor: Supervisor) -> None:
    """Stop cleanly at SIGTERM, at Ctrl-C, and when the terminal is closed. Below nohup that signal is ignored."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        """Stop cleanly, or kill the remaining services during the stop. Process managers may send SIGTERM twice."""
        if supervisor.is_stopping:
            supervisor.kill()
        else:
            supervisor.stop()

    loop.add_signal_handler(signal.SIGTERM, supervisor.stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, supervisor.stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)


def _warn_if_open(copy: Copy) -> None:
    if copy.is_insecure and any(not is_loopback(host) for host in copy.hosts.values()):
        hosts = ", ".join(sorted(set(copy.hosts.values())))
        warning_line(
            f"the store is open: it listens on {hosts} with --allow-insecure, and each program that reaches its ports "
            "can read and write; docs/security.md names TLS and tokens"
        )


async def _run(copies: list[Copy], children: list[Child], data_dir: Path, *, as_json: bool) -> int:
    supervisor = Supervisor(children, lambda line: print(line, file=sys.stderr, flush=True), restarts=len(copies) > 1)
    stop_at_signals(supervisor)
    _warn_if_open(copies[0])

    def on_ready() -> None:
        targets = {name: targets_of(copies, name) for name in copies[0].ports}
        targets |= {child.name: child.shown for child in children if child.is_optional and child.runs}
        if as_json:
            print_json({"event": "ready", "data_dir": str(data_dir), **targets})
        else:
            print(
                "ready: " + ", ".join(f"{name} {target}" for name, target in targets.items()) + f"; data in {data_dir}"
            )
        sys.stdout.flush()

    try:
        await supervisor.run(on_ready)
    except (ChildEnded, LauncherEnded) as ended:
        error_line(ended)
        return ended.exit_code
    return ExitCode.OK
