# SPDX-License-Identifier: Apache-2.0
"""A real kube-apiserver on a real etcd, as children: tests/e2e/deploy/apiserver.sh builds it."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.etcd_server import ETCD, EtcdServer
from tests.support.lease_server import KUBE_CONFIG, NAMESPACE
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

_TOOLS = Path(os.environ.get("REPUT_DEPLOY_TOOLS", Path(tempfile.gettempdir()) / "reput-deploy-tools"))
KUBE_API_SERVER = shutil.which("kube-apiserver", path=f"{os.environ.get('PATH', '')}:{_TOOLS / 'bin'}")
MISSING = KUBE_API_SERVER is None or ETCD is None
WHY = "needs kube-apiserver (tests/e2e/deploy/apiserver.sh) and etcd (Debian: etcd-server)"

ADMIN = "admin-token"


class KubeApiServer:
    """A real kube-apiserver with a single namespace. `admin` calls do not pass through our door."""

    def __init__(self, directory: Path) -> None:
        self._directory, self.port = directory, free_port()
        self._etcd = EtcdServer(directory / "etcd")
        self._child: subprocess.Popen[bytes] | None = None
        self.certificate = directory / "certs" / "apiserver.crt"

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start both servers, and wait until both are ready."""
        self._directory.mkdir(exist_ok=True)
        key, tokens = self._directory / "sa.key", self._directory / "tokens.csv"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
            tokens.write_text(f'{ADMIN},admin,admin,"system:masters"\n')
        self._etcd.start()
        self.start_alone()
        self.admin("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}, may_fail=True)

    def start_alone(self) -> None:
        """Start the API server, and wait until it is ready."""
        assert KUBE_API_SERVER is not None
        key = self._directory / "sa.key"
        flags = {
            "etcd-servers": f"http://{self._etcd.target}",
            "secure-port": self.port,
            "bind-address": "127.0.0.1",
            "cert-dir": self.certificate.parent,
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "token-auth-file": self._directory / "tokens.csv",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
            "disable-admission-plugins": "ServiceAccount",  # accounts are made by a controller, which is missing here
            "shutdown-delay-duration": "0s",
        }
        with (self._directory / "log").open("ab") as log:
            arguments = [f"--{name}={value}" for name, value in flags.items()]
            self._child = subprocess.Popen([KUBE_API_SERVER, *arguments], stdout=log, stderr=log)
        end_s = time.monotonic() + LIMIT_S
        while not self._is_ready():
            assert self._child.poll() is None, (self._directory / "log").read_text()[-2000:]
            assert time.monotonic() < end_s
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            self.call("GET", "/readyz")
        except (OSError, urllib.error.URLError):
            return False
        return True

    @property
    def pid(self) -> int:
        """The process id of the API server."""
        assert self._child is not None
        return self._child.pid

    def send(self, signal_number: int) -> None:
        """Send a signal, which stops or continues the API server."""
        assert self._child is not None
        self._child.send_signal(signal_number)

    def kill(self) -> None:
        """End the API server at once."""
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            self._child = None

    def kill_all(self) -> None:
        """End both servers."""
        self.kill()
        self._etcd.kill()

    def config_file(self, directory: Path, token: str = ADMIN) -> Path:
        """Write a file as kubectl reads it, with the token in a separate file."""
        directory.mkdir(exist_ok=True)
        (directory / "token").write_text(token)
        file = directory / "kubeconfig"
        cluster = f"{{server: '{self.url}', certificate-authority: {self.certificate}}}"
        file.write_text(
            KUBE_CONFIG.format(namespace=NAMESPACE, cluster=cluster, user=f"{{tokenFile: {directory / 'token'}}}")
        )
        return file

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> bytes:
        """Call with all rights."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        trust = ssl.create_default_context(cafile=str(self.certificate))
        with urllib.request.urlopen(request, timeout=LIMIT_S, context=trust) as response:
            found: bytes = response.read()
            return found

    def admin(self, method: str, path: str, body: Any = None, *, may_fail: bool = False) -> Any:
        """Call, and return the object. With `may_fail` an HTTP error, as for an existing namespace, gives None."""
        try:
            return json.loads(self.call(method, path, body))
        except urllib.error.HTTPError:
            if not may_fail:
                raise
            return None
