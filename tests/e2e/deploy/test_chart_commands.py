# SPDX-License-Identifier: Apache-2.0
"""The chart's settings for the `reput` command in a pod, and the way in which its probes ask."""

import pytest

from tests.e2e.deploy.test_chart import PORTS, VALUE_SETS, objects, pods

CLIENT_TARGETS = {service: f"REPUT_CLIENT_{service.upper()}_TARGET" for service in PORTS}


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_commands_in_a_pod_know_the_services(values: list[str]) -> None:
    """The `reput` command in a pod has the addresses of the services, and the files for TLS and an operator's token.

    Other services have names that are known to all pods. The pod's own service has the pod's address.
    """
    manifests = objects(*values)
    is_secure, is_copied = "tls.clientCertificates=true" in values, "commitlog.replicas" in str(values)
    absent = {service for service in PORTS if f"{service}.enabled=false" in values}
    for (kind, name), item in manifests.items():
        if kind != "ConfigMap" or "-board-" in name:
            continue
        own, data = name.rpartition("-")[2], item["data"]
        for service, variable in CLIENT_TARGETS.items():
            number = PORTS[service]
            if service in absent:
                assert variable not in data
            elif service == own and not is_copied and "tls.enabled=true" not in values:
                assert data[variable] == f"127.0.0.1:{number}"
            else:
                first = data[variable].partition(",")[0]
                pod = f"-0.shop-reput-{service}-headless" if is_copied and service != "gateway" else ""
                assert first == f"shop-reput-{service}{pod}.store.svc:{number}"
        assert data["REPUT_CLIENT_TOKEN_FILE"] == "/etc/reput/trust/operator"
        assert data.get("REPUT_CLIENT_CA_FILE") == ("/etc/reput/tls/ca.crt" if "tls.enabled=true" in values else None)
        assert data.get("REPUT_CLIENT_KEY_FILE") == ("/etc/reput/tls/tls.key" if is_secure else None)
    (test,) = dict(pods(manifests))["shop-reput-test"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in test["env"]}
    assert {CLIENT_TARGETS["commitlog"], CLIENT_TARGETS["indexer"]} <= environment.keys()
    assert environment.get("REPUT_CLIENT_TOKEN_FILE") == ("/etc/reput/token/token" if is_secure else None)
