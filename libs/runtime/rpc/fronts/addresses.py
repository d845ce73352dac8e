# SPDX-License-Identifier: Apache-2.0
"""The addresses of a front, and the errors of listening on them."""

import errno
import os
import socket
from pathlib import Path

from libs.runtime.errors import ListenFailed, PortInUse
from libs.runtime.settings import ServerConfig


def address_of(config: ServerConfig) -> str:
    """Return the address to listen on, as host:port."""
    host = f"[{config.listen_host}]" if ":" in config.listen_host else config.listen_host
    return f"{host}:{config.port}"


def listen_error(address: str, error: OSError) -> ListenFailed | PortInUse:
    """Return the error of the start for an address on which the process can't listen."""
    if error.errno == errno.EADDRINUSE:
        return PortInUse(address, setting="port")
    return ListenFailed(address, reason=error.strerror or str(error))


def probe_unix(path: Path) -> None:
    """Refuse a socket on which a process listens. A front replaces the socket that a killed process left.

    Raises ListenFailed or PortInUse.
    """
    address = f"unix:{path}"
    if not os.access(path.parent, os.W_OK):
        raise ListenFailed(address, reason="the directory is missing or can't be written")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise PortInUse(address, setting="unix_socket")
