# SPDX-License-Identifier: Apache-2.0
"""A real etcd, as a child, and calls of its gateway for JSON that our door does not have."""

import base64
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

BUILT = Path(__file__).resolve().parents[2] / ".cache" / "bin" / "etcd"
"""Built by tools/etcd/build.sh."""
ETCD = shutil.which("etcd") or shutil.which(BUILT)
NO_ETCD = "needs etcd (Debian: etcd-server), or Go to build it: tools/etcd/build.sh"
FLAGS = (
    *("--name", "one", "--logger", "zap", "--log-level", "error", "--bcrypt-cost", "4"),
    # quick elections, so that leases of a second are allowed
    *("--heartbeat-interval", "10", "--election-timeout", "100"),
)


class EtcdServer:
    """A cluster of a single member. Its ports stay the same when it is started again on its data.

    `through` is a command that starts it elsewhere, as in another network namespace, where it has the address `host`.
    """

    def __init__(
        self, data_dir: Path, *flags: str, scheme: str = "http", host: str = "127.0.0.1", through: tuple[str, ...] = ()
    ) -> None:
        self._data_dir, self._flags, self._scheme = data_dir, flags, scheme
        self._host, self._through = host, through
        self._port, self._peer_port = free_port(), free_port()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def target(self) -> str:
        """Its address. The host is the name in test certificates."""
        return f"{'localhost' if self._host == '127.0.0.1' else self._host}:{self._port}"

    def start(self) -> None:
        """Start etcd, and wait until it listens."""
        assert ETCD is not None
        client, peer = f"{self._scheme}://{self._host}:{self._port}", f"http://127.0.0.1:{self._peer_port}"
        urls = (
            *("--data-dir", str(self._data_dir), "--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
        )
        command = [*self._through, ETCD, *FLAGS, *urls, *self._flags]
        self._child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        end_s = time.monotonic() + LIMIT_S
        while True:
            assert self._child.poll() is None, "etcd has ended"
            with socket.socket() as probe:
                if probe.connect_ex((self._host, self._port)) == 0:
                    return
            assert time.monotonic() < end_s
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The process id of the server itself, not of the command that started it."""
        assert self._child is not None
        return self._child.pid

    def send(self, signal_number: int) -> None:
        """Send a signal, which stops or continues it."""
        assert self._child is not None
        self._child.send_signal(signal_number)

    def kill(self) -> None:
        """End it at once."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            self._child = None

    def post(self, path: str, **body: Any) -> Any:
        """Call the gateway, which takes bytes in base64."""
        values = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value for key, value in body.items()
        }
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/v3/{path}", json.dumps(values).encode())
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            return json.load(response)
