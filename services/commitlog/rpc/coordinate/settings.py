# SPDX-License-Identifier: Apache-2.0
"""EtcdConfig and KubernetesConfig: the connection to a coordinator.

Only values; a bootstrap puts them next to its engine's configuration.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from libs.importance import Advanced, Basic


@dataclass(frozen=True, kw_only=True, slots=True)
class EtcdConfig:
    """The connection to etcd. The name of the field is the prefix of its settings."""

    IS_PREFIXED: ClassVar = True

    targets: Basic[str]
    """Addresses of etcd's members, as host:port, separated by commas. They are tried one after the other."""

    prefix: Advanced[str] = "/reput/log"
    """Beginning of the keys of this log in etcd. Each log, with all its copies, has its own."""

    tls_ca_file: Advanced[Path | None] = None
    """PEM file with the authorities that may have signed the certificates of etcd; without it there is no TLS."""

    tls_certificate_file: Advanced[Path | None] = None
    """PEM file with the certificate to show to etcd; without it none is shown."""

    tls_key_file: Advanced[Path | None] = None
    """PEM file with the private key of that certificate."""

    user: Advanced[str] = ""
    """User of etcd, who may read and write below the prefix of the keys; empty where etcd asks for none."""

    password_file: Advanced[Path | None] = None
    """File with the password of that user. White space at its end does not count."""

    timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 1_000
    """Longest wait, in milliseconds, for one answer of etcd."""

    def __post_init__(self) -> None:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_key_file and tls_certificate_file need each other")
        if self.tls_certificate_file is not None and self.tls_ca_file is None:
            raise ValueError("tls_certificate_file needs tls_ca_file")
        if not self.prefix.strip("/"):
            raise ValueError("prefix must not be empty")
        if bool(self.user) != (self.password_file is not None):
            raise ValueError("password_file and user need each other")

    @property
    def members(self) -> tuple[str, ...]:
        """The addresses as a tuple."""
        return tuple(target.strip() for target in self.targets.split(",") if target.strip())


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesConfig:
    """The connection to a Lease of Kubernetes. The name of the field is the prefix of its settings."""

    IS_PREFIXED: ClassVar = True

    lease: Advanced[str] = "reput-log"
    """Name of the Lease of this log. Each log, with all its copies, has its own."""

    namespace: Advanced[str] = ""
    """Namespace of the Lease and of the pod; empty is that of the pod's service account, or of the file's context."""

    config_file: Advanced[Path | None] = None
    """File as kubectl reads it, that says where the API server is; without it the pod's service account does."""

    pod: Advanced[str] = ""
    """Name of the pod that this process runs in. Its label reput.dev/role then says leader or follower, as a hint for a
    Service; empty labels nothing."""

    timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 1_000
    """Longest wait, in milliseconds, for what is asked of the API server; a change is a request or two more.
    A connection has half of it."""

    def __post_init__(self) -> None:
        if not self.lease:
            raise ValueError("lease must not be empty")
