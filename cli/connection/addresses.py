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

from cli.connection.contexts import ADDRESS_VARIABLES, BESIDE_VARIABLES, STORE_VARIABLE, context_of, environment_of
from cli.exit_codes import CommandFailed, ExitCode
from libs.service_names import BESIDE, PORTS, SERVICES, STORE_PORT

Targets = Mapping[str, Sequence[str]]
"""The addresses of each service."""
RESOLVERS = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "xds:", "vsock:")
"""Prefixes of gRPC's own address forms."""
PORT_MAX = 65_535
WAIT_S = 2.0
"""Time that a command waits for a listener at an address of this machine: `reput up` may have just begun."""
PROBE_INTERVAL_S = 0.1
PROBE_TIMEOUT_S = 1.0


def targets_of(given: Mapping[str, object]) -> dict[str, list[str]]:
    """Return each service's addresses, as the client finds them, and checked. `given` are the options that were typed.

    An option that is None comes from the environment, then from the context in use, then from the defaults. In each of
    these sources the address of the store serves the services without an address. Raises BadParameter for a text
    that is no address.
    """
    environment = environment_of(given)
    store = given.get("store") or environment.get(STORE_VARIABLE)
    for target in _targets(store or ""):
        check_target(target, flag=sources_of("store"), port=STORE_PORT)
    found = {}
    for service, port in PORTS.items():
        own = given.get(service) or (not given.get("store") and environment.get(variable_of(service)))
        text = str(own or store or f"127.0.0.1:{port}")
        found[service] = _targets(text) or [text]
        for target in found[service]:
            check_target(target, flag=sources_of(service), port=port)
    return found


def _targets(text: object) -> list[str]:
    return [target for target in map(str.strip, str(text).split(",")) if target]


def beside_of(given: Mapping[str, object]) -> dict[str, tuple[list[str], bool]]:
    """Return the addresses of Delivery and the gateway, and whether they were given. Raises BadParameter.

    They need not be given if they listen at their usual ports beside a store that is at its usual ports. The address of
    the store is that of the gateway, and Delivery may be behind it.
    """
    environment = environment_of(given)
    store = given.get("store") or environment.get(STORE_VARIABLE)
    is_usual = not store and not any(given.get(service) or environment.get(variable_of(service)) for service in PORTS)
    found = {}
    for service, (_, port) in BESIDE.items():
        variable = BESIDE_VARIABLES[service]
        own = "" if given.get("store") else environment.get(variable, "")
        named = _targets(own or (store if service == "gateway" else "") or "")
        for target in named:
            check_target(target, flag=variable, port=port)
        usual = [target for target in (f"127.0.0.1:{port}",) if is_usual and not named and is_listening(target)]
        found[service] = (named or usual or _targets(store or ""), bool(named))
    return found


def place_of(given: Mapping[str, object], service: str) -> str:
    """Return a service's addresses, and the context that has them, for the question before a deletion."""
    name = context_of(given)
    return f"{', '.join(targets_of(given)[service])}{f' (context {name})' if name else ''}"


def variable_of(name: str) -> str:
    """Return the variable that names the address of a service, or of the store."""
    return ADDRESS_VARIABLES[name]


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


def sources_of(name: str) -> str:
    """Return the flag and the variable that name the address of a service, or of the store."""
    return f"--{name} or {variable_of(name)}"


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


def wait_listening(service: str, targets: Targets, wait_s: float) -> None:
    """Return when a process listens at any of a service's targets. Raises CommandFailed after `wait_s`."""
    end_s = time.monotonic() + wait_s
    while not any(map(is_listening, targets[service])):
        if time.monotonic() >= end_s:
            raise CommandFailed("UNAVAILABLE", away_text(service, targets), code=ExitCode.UNAVAILABLE)
        time.sleep(PROBE_INTERVAL_S)


def away_text(service: str, targets: Targets) -> str:
    """Return the text, with advice, for a service at whose targets no process answers."""
    where = targets[service]
    name, process = ("store", "gateway") if is_shared(service, targets) else (service, service)
    is_here = all(_is_loopback(target.rpartition(":")[0].strip("[]")) for target in where)
    start = "start it with `reput up`" if is_here else f"start it there with `reput serve {process}`"
    return (
        f"nobody answers at {', '.join(where)}, where the {_name(process)} should be; {start}, "
        f"or name its address with {sources_of(name)}"
    )


def is_shared(service: str, targets: Targets) -> bool:
    """Return whether a service has the same targets as another one: they are those of the gateway."""
    return any(targets[other] == targets[service] for other in targets if other != service)


def _name(service: str) -> str:
    return SERVICES.get(service, service)


def is_reached(target: str) -> bool:
    """Return whether a process accepts connections at a target of any machine."""
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def stranger_text(service: str, targets: Targets) -> str:
    """Return the text, with advice, for a service whose targets accept connections although no call gets through."""
    name = _name("gateway" if is_shared(service, targets) else service)
    return (
        f"somebody listens at {', '.join(targets[service])}, but no call gets through: the {name} there may want "
        "TLS or none, authorities may not fit its certificate, or it wants a client's certificate; look at --ca-file, "
        "--certificate-file and --key-file"
    )
