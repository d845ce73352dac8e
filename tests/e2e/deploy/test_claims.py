# SPDX-License-Identifier: Apache-2.0
"""The commands of the chart's README that grow claims and add disks, at Kubernetes' own API server."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.deploy.commands import CHART, run, tool
from tests.e2e.deploy.test_chart import DISKS
from tests.support.kube_api_server import MISSING, WHY, KubeApiServer
from tests.support.lease_server import NAMESPACE

KUBECTL = shutil.which("kubectl")
pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(MISSING, reason=WHY),
    pytest.mark.skipif(KUBECTL is None, reason="needs kubectl"),
]
CLAIM = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
PATCH = "kubectl patch pvc data-shop-reput-commitlog-0"
DELETE = "kubectl delete statefulset shop-reput-commitlog --cascade=orphan"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """An API server with a class of storage that can expand and a class that can't."""
    made = KubeApiServer(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.start()
        for name, can_expand in (("growing", True), ("fixed", False)):
            made.admin(
                "POST",
                "/apis/storage.k8s.io/v1/storageclasses",
                {"metadata": {"name": name}, "provisioner": "example.com/disk", "allowVolumeExpansion": can_expand},
            )
        yield made
    finally:
        made.kill_all()


def readme_command(beginning: str) -> list[str]:
    """Return the words of the README's command that begins so."""
    text = (CHART / "README.md").read_text()
    (found,) = {line for line in re.findall(r"^kubectl .*$", text, re.MULTILINE) if line.startswith(beginning)}
    return shlex.split(found, comments=True)


def kubectl(server: KubeApiServer, directory: Path, *words: str | Path, must_succeed: bool = True) -> Any:
    """Run kubectl as the administrator."""
    assert KUBECTL is not None
    options = [f"--kubeconfig={server.config_file(directory)}", f"--namespace={NAMESPACE}", "--request-timeout=60s"]
    return run(KUBECTL, *options, *words, must_succeed=must_succeed)


def stateful_set(*values: str) -> Any:
    """Return the CommitLog's StatefulSet as the chart renders it."""
    options = [part for value in values for part in ("--set", value)]
    command = [tool("helm"), "template", "shop", CHART, "--namespace", NAMESPACE, "--kube-version", "1.36.0", *options]
    for item in yaml.safe_load_all(run(*command).stdout):
        if item and (item["kind"], item["metadata"]["name"]) == ("StatefulSet", "shop-reput-commitlog"):
            return item
    raise AssertionError(values)


def bind(server: KubeApiServer, template: Any, pod: str) -> str:
    """Make the claim of a pod as the controller does, and bind it as the provisioner does. Returns its name."""
    name = f"{template['metadata']['name']}-{pod}"
    spec = {**template["spec"], "volumeName": f"disk-of-{name}", "volumeMode": "Filesystem"}
    server.admin("POST", CLAIM, {"metadata": {**template["metadata"], "name": name}, "spec": spec})
    claim = server.admin("GET", f"{CLAIM}/{name}")
    bound = {"phase": "Bound", "capacity": spec["resources"]["requests"], "accessModes": spec["accessModes"]}
    server.admin("PUT", f"{CLAIM}/{name}/status", {**claim, "status": bound})
    return name


@pytest.mark.parametrize(("pod", "storage_class", "code"), [(0, "growing", 0), (1, "fixed", 1)])
def test_a_claim_grows_by_the_command(
    server: KubeApiServer, tmp_path: Path, pod: int, storage_class: str, code: int
) -> None:
    """The README's command grows a bound claim, if its class allows it."""
    manifest = stateful_set(f"commitlog.persistence.storageClassName={storage_class}")
    (template,) = manifest["spec"]["volumeClaimTemplates"]
    name = bind(server, template, f"shop-reput-commitlog-{pod}")
    words = [word.replace("-commitlog-0", f"-commitlog-{pod}") for word in readme_command(PATCH)[1:]]
    finished = kubectl(server, tmp_path / "kube", *words, must_succeed=False)
    assert finished.returncode == code, finished.stderr
    size = server.admin("GET", f"{CLAIM}/{name}")["spec"]["resources"]["requests"]["storage"]
    assert size == ("200Gi" if code == 0 else "100Gi")


@pytest.mark.parametrize("change", [["commitlog.persistence.size=200Gi"], DISKS], ids=["size", "disks"])
def test_claim_templates_change_in_two_steps(server: KubeApiServer, tmp_path: Path, change: list[str]) -> None:
    """Kubernetes refuses other claim templates, and accepts them after the StatefulSet is deleted without its pod."""
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(stateful_set()))
    after.write_text(json.dumps(stateful_set(*change)))
    kube = tmp_path / "kube"
    kubectl(server, kube, "apply", "--filename", before)
    refused = kubectl(server, kube, "apply", "--filename", after, must_succeed=False)
    assert refused.returncode != 0
    assert "Forbidden" in refused.stderr
    kubectl(server, kube, *readme_command(DELETE)[1:], "--wait=false")
    # the controller that orphans the pods is missing here: end its work
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/shop-reput-commitlog"
    waiting = server.admin("GET", path, may_fail=True)
    if waiting is not None:
        assert waiting["metadata"]["finalizers"] == ["orphan"]
        waiting["metadata"]["finalizers"] = []
        server.admin("PUT", path, waiting)
    kubectl(server, kube, "apply", "--filename", after)
    server.admin("DELETE", path)
