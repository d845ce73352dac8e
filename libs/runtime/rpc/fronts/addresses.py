# SPDX-License-Identifier: Apache-2.0
"""Where a front listens, and what keeps it from that."""

import errno
import os
import socket
from pathlib import Path

from libs.runtime.errors import ListenFailed, PortInUse
from libs.runtime.settings import ServerConfig


def address_of(config: ServerConfig) -> str:
    """Return where to listen, as host:port."""
    host = f"[{config.listen_host}]" if ":" in config.listen_host else config.listen_host
    return f"{host}:{config.port}"


def listen_error(address: str, error: OSError) -> ListenFailed | PortInUse:
    """Return what a start says about an address that can't be had."""
    if error.errno == errno.EADDRINUSE:
        return PortInUse(address, setting="port")
    return ListenFailed(address, reason=error.strerror or str(error))


def probe_unix(path: Path) -> None:
    """Refuse a socket that somebody serves. A front replaces one that a killed process left."""
    address = f"unix:{path}"
    if not os.access(path.parent, os.W_OK):
        raise ListenFailed(address, reason="the directory is missing or can't be written")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise PortInUse(address, setting="unix_socket")
