# SPDX-License-Identifier: Apache-2.0
"""The rights that the chart gives to the logs, at Kubernetes' own API server: enough to elect, and no more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.machine.clock import SystemClock
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable
from services.commitlog.rpc.coordinate.kubernetes import KubernetesCoordinator
from services.commitlog.rpc.coordinate.role_label import FOLLOWER, LABEL, RoleLabel
from services.commitlog.rpc.coordinate.settings import KubernetesConfig
from tests.e2e.deploy.commands import CHART, run, tool
from tests.support.coordinator_contract import record_of, seen_when
from tests.support.kube_api_server import MISSING, WHY, KubeApiServer
from tests.support.lease_server import NAMESPACE

pytestmark = [pytest.mark.kubernetes, pytest.mark.skipif(MISSING, reason=WHY)]

RBAC = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
PLACES = {"Role": f"{RBAC}/roles", "RoleBinding": f"{RBAC}/rolebindings", "ServiceAccount": f"{CORE}/serviceaccounts"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """An API server with the account and the rights of a release, and a pod of its first log."""
    made = KubeApiServer(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.start()
        options = ["--namespace", NAMESPACE, "--kube-version", "1.36.0", "--set", "commitlog.replicas=3"]
        for item in yaml.safe_load_all(run(tool("helm"), "template", "shop", CHART, *options).stdout):
            if item and item["kind"] in PLACES:
                made.admin("POST", PLACES[item["kind"]], item)
        for name in ("shop-reput-commitlog-0", "another"):
            pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "log", "image": "reput"}]}}
            made.admin("POST", f"{CORE}/pods", pod)
        yield made
    finally:
        made.kill_all()


def config(server: KubeApiServer, directory: Path, **fields: Any) -> KubernetesConfig:
    """Return the configuration of a log's pod: a token of the account, which the API server gives for it."""
    asked = server.admin("POST", f"{CORE}/serviceaccounts/shop-reput/token", {"spec": {"expirationSeconds": 3600}})
    file = server.config_file(directory, asked["status"]["token"])
    return KubernetesConfig(**{"lease": "shop-reput-commitlog", "config_file": file, "timeout_ms": 60_000, **fields})


async def test_a_log_may_elect(server: KubeApiServer, tmp_path: Path) -> None:
    """With the rights of the chart every call of the coordinator works."""
    own = config(server, tmp_path)
    door = KubernetesCoordinator(own, identity="a", lease_duration_ms=60_000, clock=SystemClock())
    view = await door.elect(await door.read(), record_of(1))
    await door.renew()
    view = await door.change(view, record_of(2))
    assert await seen_when(door, lambda _: True) == view
    await door.release(view, record_of(3))
    await door.close()


async def test_another_lease_is_not_its_own(server: KubeApiServer, tmp_path: Path) -> None:
    """A log can't even read another Lease."""
    own = config(server, tmp_path, lease="kube-scheduler")
    door = KubernetesCoordinator(own, identity="a", lease_duration_ms=60_000, clock=SystemClock())
    with pytest.raises(CoordinatorUnavailable, match=r"403 leases.*forbidden"):
        await door.read()
    await door.close()


async def test_a_log_labels_its_pod_alone(server: KubeApiServer, tmp_path: Path) -> None:
    """A log can label its own pod, and a pod that is not of the release's logs stays unchanged."""
    for name in ("shop-reput-commitlog-0", "another"):
        label = RoleLabel(config(server, tmp_path, pod=name), lambda: False)
        label.loop.start()
        await label.stop()
    found = {
        pod["metadata"]["name"]: pod["metadata"].get("labels") for pod in server.admin("GET", f"{CORE}/pods")["items"]
    }
    assert found == {"shop-reput-commitlog-0": {LABEL: FOLLOWER}, "another": None}
