# SPDX-License-Identifier: Apache-2.0
"""`reput up` starts and stops the services, and prints a single line when it can't."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from reput_client import connect

from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.patience import LIMIT_S
from tests.support.reput_up import FREE_PORTS, Store, run, run_here, store

pytestmark = pytest.mark.e2e


def is_alive(process_id: int) -> bool:
    """True if a process exists and is no zombie."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_gone(*process_ids: int) -> None:
    """Wait until processes have ended."""
    end = time.monotonic() + LIMIT_S
    while any(map(is_alive, process_ids)):
        assert time.monotonic() < end, "a child outlived its parent"
        time.sleep(0.05)


def test_starts_and_stops(tmp_path: Path) -> None:
    """All three serve, Ctrl-C stops them in reverse order with exit code 0, and a second start finds the messages."""
    with store(tmp_path) as first:
        children = [first.child(service) for service in first.targets]
        assert first.run("health").code == 0
        first.json("put", "orders", "hello", "--key", "k1")
        ended = first.stop()
    assert (ended.code, "Traceback" in ended.errors) == (0, False)
    stopped = [line for line in ended.errors.splitlines() if '"stopped"' in line]
    assert [service for line in stopped for service in first.targets if f'"{service}"' in line] == [
        "janitor",
        "indexer",
        "commitlog",
    ]
    wait_gone(*children)
    with store(tmp_path) as second:
        assert [row["body"] for row in second.json("query", "key", "orders", "k1")] == ["hello"]


def test_behind_a_proxy(tmp_path: Path) -> None:
    """With `http_proxy` set and without exceptions, services and commands find each other."""
    proxy = {"http_proxy": "http://127.0.0.1:1"}
    with store(tmp_path, extra=proxy) as running:
        extra = {**proxy, **running.client_environment()}
        for arguments in (("put", "orders", "hello"), ("health",), ("janitor", "run", "--dry-run")):
            result = run(*arguments, extra=extra)
            assert result.code == 0, result


@pytest.mark.parametrize("service", ["commitlog", "indexer", "janitor"])
def test_one_failing_service_stops_the_rest(tmp_path: Path, service: str) -> None:
    """A service that dies is named with its reason, the others are stopped, and the exit code is 1."""
    with store(tmp_path) as running:
        children = [running.child(name) for name in running.targets]
        os.kill(running.child(service), signal.SIGKILL)
        running.process.communicate(timeout=LIMIT_S)
        assert running.process.returncode == 1
        assert [line for line in running.log.read_text().splitlines() if line.startswith("error: ")] == [
            f"error: {service}: was killed by SIGKILL"
        ]
        wait_gone(*children)


SLOW_STOP = {"REPUT_FAILPOINTS": "mark_clean.before_remove=sleep:3000"}
"""The CommitLog, which is stopped last, stops slowly."""
NEVER_STOPS = {"REPUT_FAILPOINTS": "mark_clean.before_remove=sleep:600000"}


def wait_stopping(running: Store) -> None:
    """Wait until the first service is being stopped."""
    running.wait_for_line('"stopping"')


def ended(running: Store) -> tuple[int, str]:
    """Return the exit code and the log."""
    return running.process.wait(LIMIT_S), running.log.read_text()


def test_sigterm_may_come_again(tmp_path: Path) -> None:
    """A second SIGTERM, as some process managers send it, gives the same orderly stop."""
    with store(tmp_path, extra=SLOW_STOP) as running:
        running.process.terminate()
        wait_stopping(running)
        running.process.terminate()
        code, errors = ended(running)
    assert (code, errors.count('"stopping"'), errors.count('"stopped"')) == (0, 3, 3), errors
    assert not (tmp_path / "abort").exists()


def test_ctrl_c_during_the_stop_kills(tmp_path: Path) -> None:
    """A second Ctrl-C kills the services at once, and the next start recovers."""
    with store(tmp_path, extra=NEVER_STOPS) as running:
        children = [running.child(name) for name in running.targets]
        running.process.terminate()
        wait_stopping(running)
        running.process.send_signal(signal.SIGINT)
        code, errors = ended(running)
    assert code == 1
    assert "was killed by SIGKILL" in errors
    assert (tmp_path / "abort").exists()
    wait_gone(*children)


def test_children_die_with_their_parent(tmp_path: Path) -> None:
    """When `reput up` itself is killed, no service is left running, and the store opens again."""
    with store(tmp_path) as running:
        children = [running.child(name) for name in running.targets]
        running.process.kill()
        running.process.wait()
        wait_gone(*children)
    with store(tmp_path):
        pass


def refused(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the only error line of a start that fails."""
    result = run("up", *arguments)
    assert "Traceback" not in result.errors
    (line,) = [line for line in result.errors.splitlines() if not line.startswith("{")]
    return result.code, line


def test_services_run_on_without_the_process_that_forks_them(tmp_path: Path) -> None:
    """It is needed for starts alone. Its death is an error when a service has to be started again."""
    with store(tmp_path / "one") as running:
        os.kill(forking(running), signal.SIGKILL)
        running.json("put", "orders", "hello")
        assert running.stop().code == 0
    with store(tmp_path / "three", "--replicas", "3") as running:
        children = [running.child("janitor", port) for port in ports_of(running, "janitor")]
        os.kill(forking(running), signal.SIGKILL)
        os.kill(children[0], signal.SIGKILL)
        code, errors = ended(running)
        assert (code, "error: the process that starts services" in errors) == (1, True), errors
        wait_gone(*children)


def forking(running: Store) -> int:
    """Return the process that forks the services of a store."""
    line = f"cli.commands.spawned {running.process.pid}$"
    command = ["pgrep", "-P", str(running.process.pid), "-f", line]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def ports_of(running: Store, service: str) -> list[str]:
    """Return the ports of a service of all copies."""
    return [target.rpartition(":")[2] for target in running.targets[service].split(",")]


def test_port_in_use(tmp_path: Path) -> None:
    """A port in use is named, and the exit code is 4."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for option in ("--commitlog-port", "--indexer-port", "--janitor-port"):
            code, line = refused("--data-dir", str(tmp_path / option), *FREE_PORTS, option, port)
            service = option.removeprefix("--").removesuffix("-port")
            assert (code, line) == (
                4,
                f"error: {service}: 127.0.0.1:{port} is in use by another process; choose another port",
            )


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    """A directory below a file can't be made, and a single line names it."""
    (tmp_path / "file").write_text("")
    code, line = refused("--data-dir", str(tmp_path / "file" / "store"), *FREE_PORTS)
    assert code == 1
    assert line.startswith("error: commitlog: ")
    assert "file/store" in line


def test_read_only_directory(tmp_path: Path) -> None:
    """A directory on a read-only file system is named in a single line. Needs the right to mount."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    read_only, remount, bind = 1, 32, 4096
    place = os.fsencode(tmp_path)
    if libc.mount(place, place, None, bind, None) != 0:
        pytest.skip("mounting is not allowed here")
    try:
        assert libc.mount(None, place, None, bind | remount | read_only, None) == 0
        code, line = refused("--data-dir", str(tmp_path / "store"), *FREE_PORTS)
    finally:
        libc.umount2(place, 2)
    assert code == 1
    assert line.startswith("error: commitlog: ")
    assert "Read-only file system" in line


def test_directory_in_use(tmp_path: Path) -> None:
    """A directory that another store has open gives a line and exit code 5, and the other store continues."""
    with store(tmp_path) as running:
        code, line = refused("--data-dir", str(tmp_path), *FREE_PORTS)
        assert code == 5
        assert line.startswith("error: commitlog: ")
        assert running.run("health").code == 0


def test_wrong_segment_size(tmp_path: Path) -> None:
    """A store that was made with another segment size gives a single line with both sizes."""
    with store(tmp_path) as running:
        running.json("put", "orders", "hello")
    result = run(
        "up", "--data-dir", str(tmp_path), *FREE_PORTS, extra={"REPUT_COMMITLOG_SEGMENT_SIZE_BYTES": "2097152"}
    )
    (line,) = [line for line in result.errors.splitlines() if not line.startswith("{")]
    assert result.code == 1
    assert line.startswith("error: commitlog: ")
    assert "1048576" in line
    assert "2097152" in line


def test_wrong_setting(tmp_path: Path) -> None:
    """A wrong setting is named with the valid values in a single line, with exit code 2."""
    result = run("up", "--data-dir", str(tmp_path), *FREE_PORTS, extra={"REPUT_INDEXER_FLUSH_INTERVAL_MS": "soon"})
    (line,) = [line for line in result.errors.splitlines() if not line.startswith("{")]
    assert result.code == 2
    assert "flush_interval_ms is 'soon'" in line


def test_command_is_installed() -> None:
    """`reput --help` prints the exit codes."""
    assert "Exit codes:" in run("--help").output


def test_a_port_where_somebody_else_serves_is_never_ready(tmp_path: Path) -> None:
    """A port where another store's server is healthy is reported as in use, and never as ready."""
    with store(tmp_path / "first") as other:
        port = other.targets["janitor"].partition(":")[2]
        command = ("up", "--data-dir", str(tmp_path / "second"), *FREE_PORTS, "--janitor-port", port)
        result = run(*command)
        assert result.code == 4, result
        assert f"janitor: 127.0.0.1:{port} is in use" in result.errors
        assert "ready" not in result.output


@pytest.mark.parametrize(
    "has_etcd", [False, pytest.param(True, marks=pytest.mark.skipif(ETCD is None, reason=NO_ETCD))]
)
def test_copies(tmp_path: Path, *, has_etcd: bool) -> None:
    """Of three stores a single store leads, and a killed leader is started again.

    No replicated message is lost.
    """
    with contextlib.ExitStack() as stack:
        flags: tuple[str, ...] = ("--replicas", "3")
        if has_etcd:
            etcd = EtcdServer(tmp_path / "etcd")
            etcd.start()
            stack.callback(etcd.kill)
            flags += ("--etcd", etcd.target)
        running = stack.enter_context(store(tmp_path / "data", *flags))
        in_sync(running)
        running.json("put", "orders", "hello", "--durability", "replicated")
        leader = next(row for row in rows(running) if row["state"] == "LEADING")
        os.kill(running.child("commitlog", leader["target"].rsplit(":", 1)[1]), signal.SIGKILL)
        in_sync(running)
        running.json("put", "orders", "again", "--durability", "replicated")
        end = time.monotonic() + LIMIT_S
        while {row["body"] for row in running.json("tail", "orders")} != {"hello", "again"}:  # of a copy, soon
            assert time.monotonic() < end


def rows(running: Store) -> list[dict[str, Any]]:
    """Return the rows of `reput replicas` about each log."""
    return running.run("replicas", "--json").rows


def in_sync(running: Store) -> None:
    """Wait until a log leads, and all are in sync."""
    end = time.monotonic() + LIMIT_S
    while [row.get("is_in_sync") for row in rows(running)] != [True] * 3:
        assert time.monotonic() < end, rows(running)
        time.sleep(0.1)


def test_an_open_store_says_so(tmp_path: Path) -> None:
    """Beyond loopback `up` needs --allow-insecure. With it all addresses reach the store, and a warning says so."""
    everywhere = ("--listen-host", "0.0.0.0")
    refused = run("up", "--data-dir", str(tmp_path / "closed"), *FREE_PORTS, *everywhere)
    assert (refused.code, "allow_insecure = true" in refused.errors) == (2, True), refused
    with store(tmp_path / "open", *everywhere, "--allow-insecure") as served:
        other = {name: target.replace("127.0.0.1", "127.0.0.2") for name, target in served.targets.items()}
        with connect(commitlog=other["commitlog"], indexer=other["indexer"]) as client, client.producer() as producer:
            producer.send("orders", b"hello").result(LIMIT_S)
        ended = served.stop()
    assert "warning: the store is open: it listens on 0.0.0.0 with --allow-insecure" in ended.errors
    with store(tmp_path / "closed") as served, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", int(served.targets["commitlog"].rpartition(":")[2])), timeout=LIMIT_S)


def test_all_apis_are_at_one_port(tmp_path: Path) -> None:
    """`reput up` runs a gateway whose door serves all commands; its end is a line, and the store goes on."""
    with store(tmp_path, "--delivery", "--delivery-port", "0", "--gateway", "--gateway-port", "0") as running:
        services = dict.fromkeys(("COMMITLOG", "INDEXER", "JANITOR", "DELIVERY"), running.door)
        through = {f"REPUT_CLIENT_{name}_TARGET": target for name, target in services.items()}
        for command in (("put", "t", "x", "--key", "k"), ("status",), ("groups", "list"), ("janitor", "status")):
            result = run_here(*command, extra=through)
            assert result.code == 0, (command, result)
        assert [row["body"] for row in run_here("query", "key", "t", "k", "--json", extra=through).rows] == ["x"]
        os.kill(running.child("gateway"), signal.SIGKILL)
        line = running.wait_for_line("the store runs without it")
        assert line.startswith("gateway: was killed by SIGKILL")
        assert running.run("health").code == 0
