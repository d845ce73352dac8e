# SPDX-License-Identifier: Apache-2.0
"""Addresses as users type them: their syntax is checked, and whether a process listens there.

No gRPC here: an address at which no process listens is reported before gRPC is loaded.
"""

import ipaddress
import re
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from cli.connection.contexts import BESIDE_VARIABLES, TARGET_VARIABLES, context_of, environment_of
from cli.exit_codes import CommandFailed, ExitCode

SERVICES = {"commitlog": "CommitLog", "indexer": "Indexer", "janitor": "Janitor", "delivery": "Delivery"}
"""Services and their names for users."""
PORTS = {"commitlog": 7101, "indexer": 7102, "janitor": 7103, "delivery": 7104}
OF_EVERY_STORE = ("commitlog", "indexer", "janitor")
"""Services that every store has."""
BESIDE = {"delivery": ("Delivery", 7104), "gateway": ("the gateway", 8081)}
"""Services that not every store has: their names for users, and their usual ports."""
RESOLVERS = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "xds:", "vsock:")
"""Prefixes of gRPC's own address forms."""
PORT_MAX = 65_535
WAIT_S = 2.0
"""Time that a command waits for a listener at an address of this machine: `reput up` may have just begun."""
PROBE_INTERVAL_S = 0.1
PROBE_TIMEOUT_S = 1.0


def targets_of(given: Mapping[str, object]) -> dict[str, list[str]]:
    """Return each service's addresses, as the client finds them, and checked. `given` are the options that were typed.

    An option that is None comes from the environment, then from the context in use, then from the defaults. Raises
    BadParameter for a text that is no address.
    """
    found = {}
    environment = environment_of(given)
    for service, port in PORTS.items():
        text = str(given.get(service) or environment.get(variable_of(service)) or f"127.0.0.1:{port}")
        found[service] = [target for target in map(str.strip, text.split(",")) if target] or [text]
        for target in found[service]:
            check_target(target, flag=sources_of(service), port=port)
    return found


def beside_of(given: Mapping[str, object]) -> dict[str, tuple[list[str], bool]]:
    """Return the addresses of Delivery and the gateway, and whether they were given. Raises BadParameter.

    They need not be given if they listen at their usual ports beside a store that is at its usual ports.
    """
    environment = environment_of(given)
    is_usual = not any(given.get(service) or environment.get(variable_of(service)) for service in PORTS)
    found = {}
    for service, (_, port) in BESIDE.items():
        variable = BESIDE_VARIABLES[service]
        named = [target for target in map(str.strip, environment.get(variable, "").split(",")) if target]
        for target in named:
            check_target(target, flag=variable, port=port)
        usual = [target for target in (f"127.0.0.1:{port}",) if is_usual and not named and is_listening(target)]
        found[service] = (named or usual, bool(named))
    return found


def place_of(given: Mapping[str, object], service: str) -> str:
    """Return a service's addresses, and the context that has them, for the question before a deletion."""
    name = context_of(given)
    return f"{', '.join(targets_of(given)[service])}{f' (context {name})' if name else ''}"


def variable_of(service: str) -> str:
    """Return the variable that names a service's address."""
    return TARGET_VARIABLES[service]


def check_target(target: str, *, flag: str, port: int) -> None:
    """Raise BadParameter for a text that is no address. `port` is the usual port, for the advice."""
    if target.startswith(RESOLVERS):
        return
    if match := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", target):
        rest = target[match.end() :].rstrip("/") or f"127.0.0.1:{port}"
        raise _bad(f"{target!r} is a URL: give host:port, as in {rest}, without {match[0]}", flag)
    host, separator, text = target.rpartition(":")
    is_bare = not separator or target.endswith("]") or (":" in host and not host.startswith("["))
    if is_bare:
        shown = f"[{target}]" if ":" in target and not target.startswith("[") else target
        raise _bad(f"{target!r} has no port: give host:port, as in {shown or '127.0.0.1'}:{port}", flag)
    if not host:
        raise _bad(f"{target!r} has no host: give host:port, as in 127.0.0.1{target}", flag)
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= PORT_MAX):
        raise _bad(f"{target!r}: port {text!r} is no number from 1 to {PORT_MAX}", flag)


def _bad(text: str, flag: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=flag)


def sources_of(service: str) -> str:
    """Return the flag and the variable that name a service's address."""
    return f"--{service} or {variable_of(service)}"


def is_listening(target: str) -> bool:
    """Return False if no process listens at a target of this machine. gRPC checks other targets, perhaps by a proxy."""
    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    if not (_is_loopback(host) and port.isdigit()):
        return True
    try:
        address: Any = (host.encode(), int(port))  # of bytes: a name as text would import tables for names beyond ASCII
        socket.create_connection(address, PROBE_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def _is_loopback(host: str) -> bool:
    if host in ("127.0.0.1", "localhost"):  # the usual hosts
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def wait_listening(service: str, targets: Sequence[str], wait_s: float) -> None:
    """Return when a process listens at any of the targets. Raises CommandFailed after `wait_s`."""
    end_s = time.monotonic() + wait_s
    while not any(map(is_listening, targets)):
        if time.monotonic() >= end_s:
            raise CommandFailed("UNAVAILABLE", away_text(service, targets), code=ExitCode.UNAVAILABLE)
        time.sleep(PROBE_INTERVAL_S)


def away_text(service: str, targets: Sequence[str]) -> str:
    """Return the text, with advice, for targets at which no process answers."""
    is_here = all(_is_loopback(target.rpartition(":")[0].strip("[]")) for target in targets)
    start = "start it with `reput up`" if is_here else f"start it there with `reput serve {service}`"
    return (
        f"nobody answers at {', '.join(targets)}, where the {SERVICES[service]} should be; {start}, "
        f"or name its address with {sources_of(service)}"
    )


def is_reached(target: str) -> bool:
    """Return whether a process accepts connections at a target of any machine."""
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def stranger_text(service: str, targets: Sequence[str]) -> str:
    """Return the text, with advice, for targets that accept connections although no call gets through."""
    return (
        f"somebody listens at {', '.join(targets)}, but no call gets through: the {SERVICES[service]} there may want "
        "TLS or none, authorities may not fit its certificate, or it wants a client's certificate; look at --ca-file, "
        "--certificate-file and --key-file"
    )
