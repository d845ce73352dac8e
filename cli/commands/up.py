# SPDX-License-Identifier: Apache-2.0
"""`reput up`: a whole store on this machine: three processes on loopback over one data directory."""

import asyncio
import contextlib
import random
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.exit_codes import ExitCode
from cli.output import JsonOption, error_line, print_json
from cli.supervisor import Child, ChildEnded, Supervisor

HOST = "127.0.0.1"
FREE_PORTS = (20_000, 32_000)


def up(
    data_dir: Annotated[
        Path, typer.Option(envvar="REPUT_DATA_DIR", metavar="DIR", help="Directory of the store; made if missing.")
    ] = Path("reput-data"),
    commitlog_port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="REPUT_COMMITLOG_PORT", help="Port; 0 takes any free one.")
    ] = 7101,
    indexer_port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="REPUT_INDEXER_PORT", help="Port; 0 takes any free one.")
    ] = 7102,
    janitor_port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="REPUT_JANITOR_PORT", help="Port; 0 takes any free one.")
    ] = 7103,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file with a table for each service.")
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics/--no-metrics", help="Open the Prometheus endpoints on ports 7201 to 7203.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Run all three services over one directory until Ctrl-C or SIGTERM.

    Both stop in order, however often SIGTERM comes; a Ctrl-C during the stop kills what is left.

    It says `ready` when all three answer and the indexes are complete.
    Settings of a service come from REPUT_COMMITLOG_…, REPUT_INDEXER_… and REPUT_JANITOR_… or from --config. Logs go to
    standard error. If a service fails, the others are stopped, and the exit code is that of the service.
    """
    ports = {"commitlog": commitlog_port, "indexer": indexer_port, "janitor": janitor_port}
    children = _children(data_dir, _chosen(ports), config, metrics=metrics)
    raise typer.Exit(asyncio.run(_run(children, data_dir, as_json=as_json)))


def _children(data_dir: Path, ports: dict[str, int], config: Path | None, *, metrics: bool) -> list[Child]:
    targets = {name: f"{HOST}:{port}" for name, port in ports.items()}
    shared = ["--data-dir", str(data_dir), "--listen-host", HOST]
    shared += ["--config", str(config)] if config is not None else []
    shared += [] if metrics else ["--metrics-port", "0"]
    peers = {
        "commitlog": [],
        "indexer": ["--commitlog-target", targets["commitlog"], "--commitlog-data-dir", str(data_dir)],
        "janitor": ["--commitlog-target", targets["commitlog"], "--indexer-target", targets["indexer"]],
    }
    return [
        Child(name, [*shared, "--port", str(ports[name]), *peers[name]], targets[name])
        for name in ("commitlog", "indexer", "janitor")
    ]


def _chosen(ports: dict[str, int]) -> dict[str, int]:
    """Put free ports in place of 0. All are held until all are chosen, so that no two are equal."""
    with contextlib.ExitStack() as sockets:
        return {name: port or _hold_free_port(sockets) for name, port in ports.items()}


def _hold_free_port(sockets: contextlib.ExitStack) -> int:
    """Hold and return a free port that no outgoing connection uses: it lies below Linux's range for those."""
    while True:
        probe = sockets.enter_context(socket.socket())
        port = random.randrange(*FREE_PORTS)  # noqa: S311 - any will do
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


async def _run(children: list[Child], data_dir: Path, *, as_json: bool) -> int:
    supervisor = Supervisor(children, lambda line: print(line, file=sys.stderr, flush=True))
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        """Stop in order, or kill what is left at a Ctrl-C during the stop. Process managers may say SIGTERM twice."""
        if supervisor.is_stopping:
            supervisor.kill()
        else:
            supervisor.stop()

    loop.add_signal_handler(signal.SIGTERM, supervisor.stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)

    def on_ready() -> None:
        targets = {child.name: child.target for child in children}
        if as_json:
            print_json({"event": "ready", "data_dir": str(data_dir), **targets})
        else:
            print(
                "ready: " + ", ".join(f"{name} {target}" for name, target in targets.items()) + f"; data in {data_dir}"
            )
        sys.stdout.flush()

    try:
        await supervisor.run(on_ready)
    except ChildEnded as ended:
        error_line(ended)
        return ended.exit_code
    return ExitCode.OK
