# SPDX-License-Identifier: Apache-2.0
"""Addresses are checked before they are used, and a missing service is reported in the command's own words."""

import socket
import threading
import time

import pytest
import typer
from reput_client import Options, UnavailableError

from cli.connection.addresses import away_text, check_target, is_listening, targets_of, variable_of, wait_listening
from cli.connection.client import explained, services_meant
from cli.exit_codes import CommandFailed, ExitCode
from libs.service_names import PORTS
from tests.support.reput_up import run_here

NOBODY = {variable_of(service): f"127.0.0.1:{port}" for port, service in enumerate(PORTS, 1)}


@pytest.mark.parametrize(
    "target",
    ["127.0.0.1:7102", "host:1", "[::1]:65535", "unix:/run/x", "unix:///run/x", "dns:///a:1", "ipv4:1.2.3.4:5"],
)
def test_addresses(target: str) -> None:
    """Hosts with ports, and gRPC's own forms."""
    check_target(target, flag="--indexer", port=7102)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("127.0.0.1", "'127.0.0.1' has no port: give host:port, as in 127.0.0.1:7102"),
        ("http://127.0.0.1:7102", "is a URL: give host:port, as in 127.0.0.1:7102, without http://"),
        ("https://log/", "is a URL: give host:port, as in log, without https://"),
        ("::1", "'::1' has no port: give host:port, as in [::1]:7102"),
        ("[::1]", "as in [::1]:7102"),
        (":7102", "':7102' has no host: give host:port, as in 127.0.0.1:7102"),
        ("host:", "port '' is no number from 1 to 65535"),
        ("host:0", "port '0' is no number from 1 to 65535"),
        ("host:65536", "port '65536' is no number"),
        ("host:x", "port 'x' is no number"),
    ],
)
def test_what_is_no_address(target: str, text: str) -> None:
    """A bad address is refused with an example of a good address."""
    with pytest.raises(typer.BadParameter) as caught:
        check_target(target, flag="--indexer", port=7102)
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        ({}, {}),
        ({"indexer": "a:1, b:2"}, {}),
        ({}, {"indexer": "c:3"}),
        ({"indexer": "a:1"}, {"indexer": "c:3"}),
        ({"store": "door:1", "indexer": "a:1"}, {"store": "d:4", "janitor": "c:3"}),
        ({"indexer": "a:1"}, {"store": "door:1, door:2", "janitor": "c:3"}),
    ],
)
def test_addresses_are_those_of_the_client(
    given: dict[str, str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option takes precedence over a variable, and a variable over the default.

    The client has the same rule.
    """
    for service in ("store", *PORTS):
        monkeypatch.delenv(variable_of(service), raising=False)
    for service, target in environment.items():
        monkeypatch.setenv(variable_of(service), target)
    options = Options.load(given)
    assert targets_of(given) == {service: options.targets(service) for service in PORTS}


def test_whether_somebody_listens() -> None:
    """Only on this machine the command knows without gRPC whether a process listens.

    For another machine gRPC may use a proxy.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert is_listening(f"127.0.0.1:{server.getsockname()[1]}")
    assert not is_listening("127.0.0.1:1")
    assert not is_listening("localhost:1")
    assert is_listening("unix:/nowhere")
    assert is_listening("192.0.2.1:1")


def test_one_that_is_just_starting_is_waited_for() -> None:
    """The command waits for a service that is starting, until a process listens at any of its addresses."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        starter = threading.Timer(0.2, server.listen)
        starter.start()
        wait_listening("indexer", {"indexer": ["127.0.0.1:1", f"127.0.0.1:{server.getsockname()[1]}"]}, 30)
        starter.join()


def test_nobody_is_there() -> None:
    """After the wait the error has the address, the service, the command that starts it, and the settings for it."""
    with pytest.raises(CommandFailed) as caught:
        wait_listening("indexer", {"indexer": ["127.0.0.1:1"], "commitlog": ["127.0.0.1:2"]}, 0)
    assert caught.value.code is ExitCode.UNAVAILABLE
    assert str(caught.value) == (
        "UNAVAILABLE: nobody answers at 127.0.0.1:1, where the Indexer should be; start it with `reput up`, or name "
        "its address with --indexer or REPUT_CLIENT_INDEXER_TARGET"
    )
    assert "start it there with `reput serve commitlog`" in away_text("commitlog", {"commitlog": ["far:7101"]})
    assert away_text("indexer", {service: ["far:8081"] for service in PORTS}) == (
        "nobody answers at far:8081, where the gateway should be; start it there with `reput serve gateway`, or name "
        "its address with --store or REPUT_CLIENT_STORE_TARGET"
    )


@pytest.mark.parametrize(
    "text",
    ["failed to connect to all addresses; last error: UNKNOWN: ipv4:9.9.9.9:7102: no", "errors resolving x:7102: no"],
)
def test_what_grpc_says_of_other_machines(text: str) -> None:
    """gRPC's text is replaced, and the port in the text tells the service that was meant."""
    options = Options(indexer="x:7102", commitlog="y:7101")
    with (
        pytest.raises(CommandFailed, match="nobody answers at x:7102, where the Indexer should be"),
        explained(options, ["commitlog"]),
    ):
        raise UnavailableError(text)
    with pytest.raises(UnavailableError), explained(options, []):
        raise UnavailableError("the server is stopping")
    assert services_meant(options, "failed to connect to all addresses", ["commitlog"]) == ["commitlog"]


def test_somebody_is_there_who_understands_nothing() -> None:
    """A process that listens but understands no call is reported as a matter of TLS, not as a service to start."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        target = f"127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(CommandFailed, match=f"somebody listens at {target}, but no call gets through.*--ca-file"),
            explained(Options(indexer=target), ["indexer"]),
        ):
            raise UnavailableError(f"failed to connect to all addresses; last error: UNKNOWN: ipv4:{target}: closed")


@pytest.mark.parametrize(
    ("arguments", "service"),
    [
        (("put", "t", "x"), "CommitLog"),
        (("pull", "t"), "Indexer"),
        (("janitor", "status"), "Janitor"),
        (("topics", "list"), "CommitLog"),
    ],
)
def test_commands_say_who_is_away(arguments: tuple[str, ...], service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose service is missing fails soon, with exit code 4 and a line that names the service."""
    monkeypatch.setattr("cli.connection.client.WAIT_S", 0.2)
    started_s = time.monotonic()
    result = run_here(*arguments, extra=NOBODY)
    assert (result.code, result.output) == (4, "")
    target = NOBODY[variable_of(service.lower())]
    assert f"nobody answers at {target}, where the {service} should be" in result.errors
    assert time.monotonic() - started_s < 30


def test_addresses_are_checked_first() -> None:
    """A bad address is wrong usage in each command."""
    for arguments in (("status",), ("pull", "t"), ("health",), ("replicas",)):
        result = run_here("--indexer", "http://127.0.0.1:7102", *arguments, extra=NOBODY)
        assert (result.code, "is a URL" in result.errors) == (2, True), result
