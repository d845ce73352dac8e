# SPDX-License-Identifier: Apache-2.0
"""The Helm chart with several copies of the log: the election, the network policies, and the service of each log."""

import os
import subprocess
from pathlib import Path

from services.commitlog.rpc.coordinate.role_label import LABEL, LEADER
from services.gateway.rpc.access_keys import OTHERS
from tests.e2e.deploy.settings import load_settings
from tests.e2e.deploy.test_chart import NUMBERED, PORTS, VALUE_SETS, objects, of_pod, pods


def test_copies_of_the_log_elect_one_of_them() -> None:
    """Each copy has its own name and address, all have a common Lease, and the first copy makes the record."""
    manifests = objects(*VALUE_SETS["replicated-secure"])
    data = manifests["ConfigMap", "shop-reput-commitlog"]["data"]
    settings = [
        load_settings("commitlog", {**data, **of_pod(manifests, "shop-reput-commitlog", f"shop-reput-commitlog-{pod}")})
        for pod in range(5)
    ]
    names = [f"shop-reput-commitlog-{pod}" for pod in range(5)]
    assert [one.engine.replica_id for one in settings] == [one.kubernetes.pod for one in settings] == names
    assert [one.engine.advertise_target for one in settings] == [
        f"{name}.shop-reput-commitlog-headless.store.svc:7101" for name in names
    ]
    assert {(one.engine.coordinator, one.engine.role, one.engine.bootstrap_replica_id) for one in settings} == {
        ("kubernetes", "sync_master", names[0])
    }
    assert {(one.kubernetes.lease, one.kubernetes.namespace) for one in settings} == {("shop-reput-commitlog", "store")}
    assert {str(one.leader.tls_ca_file) for one in settings} == {"/etc/reput/tls/ca.crt"}
    assert {str(one.leader.tls_key_file) for one in settings} == {"/etc/reput/tls/tls.key"}
    pair = objects(*VALUE_SETS["replicated-pair"])["ConfigMap", "shop-reput-commitlog"]["data"]
    assert pair["REPUT_COMMITLOG_ROLE"] == "async_master"


def test_copies_are_on_machines_of_their_own() -> None:
    """Copies run on different machines, so that two are never lost together.

    A drain takes a pod at a time. All pods start at once, in any order.
    """
    manifests = objects("commitlog.replicas=3")
    for service in NUMBERED:
        spec = manifests["StatefulSet", f"shop-reput-{service}"]["spec"]
        assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
        assert manifests["PodDisruptionBudget", f"shop-reput-{service}"]["spec"]["maxUnavailable"] == 1
    template = manifests["StatefulSet", "shop-reput-commitlog"]["spec"]["template"]
    (rule,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    for values in (["commitlog.replicas=2"], ["commitlog.replicas=3", "commitlog.antiAffinity=preferred"]):
        assert "affinity" not in dict(pods(objects(*values)))["shop-reput-commitlog"]


def test_copies_may_touch_their_own_alone() -> None:
    """Copies may use their Lease and label the logs' pods, and a single log has no rights at all."""
    manifests = objects("commitlog.replicas=3")
    rules = manifests["Role", "shop-reput-commitlog"]["rules"]
    assert [(rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in rules] == [
        (["leases"], ["create"], None),
        (["leases"], ["get", "list", "watch", "update"], ["shop-reput-commitlog"]),
        (["pods"], ["patch"], [f"shop-reput-commitlog-{pod}" for pod in range(3)]),
    ]
    binding = manifests["RoleBinding", "shop-reput-commitlog"]
    assert [subject["name"] for subject in binding["subjects"]] == ["shop-reput"]
    assert not [name for kind, name in objects() if "Role" in kind]


def test_the_leader_has_a_service() -> None:
    """The leader's Service selects the pod that the leader labels, and copies find each other before they are ready."""
    manifests = objects("commitlog.replicas=3")
    leader = manifests["Service", "shop-reput-commitlog-leader"]["spec"]
    template = manifests["StatefulSet", "shop-reput-commitlog"]["spec"]["template"]["metadata"]["labels"]
    assert leader["selector"] == {**{key: template[key] for key in leader["selector"] if key != LABEL}, LABEL: LEADER}
    assert LABEL not in template
    assert manifests["Service", "shop-reput-commitlog-headless"]["spec"]["publishNotReadyAddresses"] is True


def test_each_log_has_its_own_services(tmp_path: Path) -> None:
    """Each pod of a service uses the log, and the Indexer, with the same pod number."""
    manifests = objects("commitlog.replicas=3")
    reput = tmp_path / "reput"
    reput.write_text('#!/bin/sh\necho "$*"\nenv | grep ^REPUT_ | sort\n')
    reput.chmod(0o755)

    def told(service: str, number: int) -> list[str]:
        (container,) = dict(pods(manifests))[f"shop-reput-{service}"]["containers"]
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOSTNAME": f"shop-reput-{service}-{number}"}
        done = subprocess.run(container["command"], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    log = "TARGET=shop-reput-commitlog-{0}.shop-reput-commitlog-headless.store.svc:7101"
    index = "TARGET=shop-reput-indexer-{0}.shop-reput-indexer-headless.store.svc:7102"
    assert told("indexer", 0) == ["serve", "indexer", f"REPUT_INDEXER_COMMITLOG_{log.format(0)}"]
    assert told("indexer", 2)[2:] == [f"REPUT_INDEXER_COMMITLOG_{log.format(2)}"]
    assert told("janitor", 1) == [
        "serve", "janitor", f"REPUT_JANITOR_COMMITLOG_{log.format(1)}", f"REPUT_JANITOR_INDEXER_{index.format(1)}"
    ]  # fmt: skip
    assert told("delivery", 2) == [
        "serve", "delivery", f"REPUT_DELIVERY_COMMITLOG_{log.format(2)}", f"REPUT_DELIVERY_INDEXER_{index.format(2)}"
    ]  # fmt: skip


def test_gateways_know_all_logs() -> None:
    """A gateway has the addresses of all copies of the log, and finds the leader.

    With a single log it uses the Services. There may be any number of gateways, and a drain takes a gateway at a time.
    """
    for values, names in (((), ("",)), (("commitlog.replicas=3",), ("-0", "-1", "-2"))):
        data = objects(*values)["ConfigMap", "shop-reput-gateway"]["data"]
        settings = load_settings("gateway", data)
        for service, peer in (("commitlog", settings.commitlog), ("delivery", settings.delivery)):
            at = f".shop-reput-{service}-headless" if len(names) > 1 else ""
            found = [f"shop-reput-{service}{name}{at}.store.svc:{PORTS[service]}" for name in names]
            assert peer.target == ",".join(found)
    manifests = objects(*VALUE_SETS["gateways"])
    assert manifests["Deployment", "shop-reput-gateway"]["spec"]["replicas"] == 3
    assert manifests["PodDisruptionBudget", "shop-reput-gateway"]["spec"]["maxUnavailable"] == 1


def test_clients_of_gateways_show_keys_alone() -> None:
    """A gateway asks its clients for neither certificates nor tokens, because they have none.

    Its access keys are in a separate Secret.
    """
    manifests = objects(*VALUE_SETS["replicated-secure"])
    data = manifests["ConfigMap", "shop-reput-gateway"]["data"]
    settings = load_settings("gateway", data)
    assert (settings.server.token_file, settings.server.tls_client_ca_file) == (None, None)
    assert str(settings.server.tls_certificate_file) == "/etc/reput/tls/tls.crt"
    assert str(settings.delivery.tls_key_file) == "/etc/reput/tls/tls.key"
    pod = dict(pods(manifests))["shop-reput-gateway"]
    (secret,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "access"]
    assert (secret["secretName"], secret["items"]) == ("keys", [{"key": "keys", "path": "keys"}])
    (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "access"]
    assert str(settings.engine.access_keys_file) == f"{mount['mountPath']}/keys"
    assert not secret["defaultMode"] & OTHERS, "the gateway would refuse a file that others may read"
    assert "REPUT_GATEWAY_ACCESS_KEYS_FILE" not in objects()["ConfigMap", "shop-reput-gateway"]["data"]


def test_one_delivery_at_a_log() -> None:
    """A log has a single Delivery, also during an upgrade: two would take the journal from each other."""
    spec = objects()["Deployment", "shop-reput-delivery"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_copies_reach_each_other_and_the_api_server() -> None:
    """The copies reach each other and the API server, and the other services reach no more than with a single log."""
    manifests = objects("commitlog.replicas=3", "networkPolicy.apiServerPorts={8443}")
    spec = manifests["NetworkPolicy", "shop-reput-commitlog"]["spec"]
    assert {port["port"] for rule in spec["egress"] for port in rule["ports"]} == {53, 7101, 8443}
    (callers,) = spec["ingress"][0]["from"][0]["podSelector"]["matchExpressions"]
    assert "commitlog" in callers["values"]
    for service in ("indexer", "janitor", "delivery", "gateway"):
        alone, copied = (found["NetworkPolicy", f"shop-reput-{service}"] for found in (objects(), manifests))
        assert alone == copied
