# SPDX-License-Identifier: Apache-2.0
"""The client of the coordinator that the settings name. Only its own dependencies are loaded."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from libs.runtime.errors import ConfigError
from services.commitlog.rpc.coordinate.settings import EtcdConfig, KubernetesConfig

if TYPE_CHECKING:
    from services.commitlog.engine.elect.coordinator import Coordinator
    from services.commitlog.rpc.coordinate.role_label import RoleLabel


def open_door(
    name: str, etcd: EtcdConfig, kubernetes: KubernetesConfig, *, identity: str, lease_duration_ms: int
) -> "Coordinator":
    """Return a process' client of a coordinator. Raises ConfigError."""
    if name == "etcd":
        from services.commitlog.rpc.coordinate.etcd import EtcdCoordinator

        return EtcdCoordinator(etcd, prefix=etcd.prefix, identity=identity, lease_duration_ms=lease_duration_ms)
    assert name == "kubernetes"
    try:
        from services.commitlog.rpc.coordinate.kubernetes import KubernetesCoordinator
    except ImportError as error:
        raise ConfigError(f"coordinator kubernetes: {error}: install reput-server[kubernetes]") from error
    return KubernetesCoordinator(kubernetes, identity=identity, lease_duration_ms=lease_duration_ms)


def label_role(name: str, kubernetes: KubernetesConfig, leads: Callable[[], bool]) -> "RoleLabel | None":
    """Return the label of this process' pod, if the settings name the pod. Raises ConfigError."""
    if name != "kubernetes" or not kubernetes.pod:
        return None
    from services.commitlog.rpc.coordinate.role_label import RoleLabel

    return RoleLabel(kubernetes, leads)
