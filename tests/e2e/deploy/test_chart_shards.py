# SPDX-License-Identifier: Apache-2.0
"""Shards in the chart: a release for each, and gateways before all of them, which find and reach each other."""

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.runtime.peer.shards import shards_of
from libs.shards import shards_file
from libs.shards.shards_file import Shard
from tests.e2e.deploy.commands import CHART, ROOT, run, schema_location, tool
from tests.e2e.deploy.settings import load_settings
from tests.e2e.deploy.test_chart import DISKS, EXTENDED, KUBERNETES_VERSION, PORTS, SECURE, of_pod, pods

TRUST = "trust.secretName=shop-trust"
TWO = [TRUST, "shards.a.release=shop-a", "shards.b.release=shop-b"]
STORE, GATEWAYS = ["gateway.enabled=false"], ["store.enabled=false"]
FAR = [*TWO, "shards.a.namespace=store", "shards.b.namespace=far", "shards.b.replicas=3"]
ALL = [*SECURE, "serviceMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true"]
RELEASES = {
    "store": ("shop-a", [*TWO, *STORE]),
    "gateways": ("shop", [*TWO, *GATEWAYS]),
    "both": ("shop-a", TWO),
    "copies": ("shop-b", [*FAR, *STORE, "shards.b.namespace=store", "commitlog.replicas=3"]),
    "store-with-all": (
        "shop-a", [*FAR, *STORE, *ALL, *EXTENDED, *DISKS, "backup.enabled=true", "backup.destination=s3://b/a"],
    ),
    "gateways-and-console": ("shop", [*TWO, *GATEWAYS, "console.enabled=true"]),
    "gateways-with-all": (
        "shop", [*FAR, *GATEWAYS, *ALL, *EXTENDED, "gateway.replicas=2", "gateway.accessKeys.secretName=keys",
            "console.enabled=true",
        ],
    ),
}  # fmt: skip
READERS = ("gateway", "delivery", "console")
SETS = pytest.mark.parametrize(("release", "values"), RELEASES.values(), ids=RELEASES)
Manifests = Mapping[tuple[str, str], Any]


def command(release: str, *values: str, chart: Path = CHART, namespace: str = "store") -> list[str | Path]:
    """The words after `helm template` or `helm lint` for a release with these values."""
    options = [part for value in values for part in ("--set", value)]
    return [release, chart, "--namespace", namespace, "--kube-version", KUBERNETES_VERSION, *options]


def objects_of(*words: str | Path) -> dict[tuple[str, str], Any]:
    """The objects that `helm template` makes with these words, by kind and name."""
    found = yaml.safe_load_all(run(tool("helm"), "template", *words).stdout)
    return {(item["kind"], item["metadata"]["name"]): item for item in found if item}


def objects(release: str, *values: str, namespace: str = "store") -> dict[tuple[str, str], Any]:
    """The rendered objects of a release by kind and name."""
    return objects_of(*command(release, *values, namespace=namespace))


def shards_in(manifests: Manifests, release: str) -> Mapping[str, Shard]:
    """The shards, as a service reads them from the file of the release."""
    return shards_file.loads(manifests["ConfigMap", f"{release}-reput-shards"]["data"]["shards.toml"])


@SETS
def test_manifests_are_what_kubernetes_knows(release: str, values: list[str]) -> None:
    """helm finds nothing, and every object passes the strict schema of its kind."""
    run(tool("helm"), "lint", "--strict", *command(release, *values)[1:])
    rendered = run(tool("helm"), "template", *command(release, *values)).stdout
    options = ["-strict", "-summary", "-kubernetes-version", KUBERNETES_VERSION, "-schema-location", schema_location()]
    summary = run(tool("kubeconform"), *options, "-", stdin=rendered).stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in summary, summary


@SETS
def test_gateways_and_deliveries_read_the_file(release: str, values: list[str], tmp_path: Path) -> None:
    """The services' own parsers accept the settings and the mounted file, which only its readers have."""
    manifests = objects(release, *values)
    for name, pod in pods(manifests):
        service = name.rpartition("-")[2]
        if service not in PORTS:
            continue
        data = {**manifests["ConfigMap", name]["data"], **of_pod(dict(manifests), name, f"{name}-1")}
        settings, container = load_settings(service, data), pod["containers"][0]
        path: Path | None = getattr(settings.engine, "shards_file", None)
        places = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
        if service not in READERS:
            assert (path, places.get("/etc/reput/shards")) == (None, None)
            continue
        assert path is not None
        mount, volumes = places[str(path.parent)], {volume["name"]: volume for volume in pod["volumes"]}
        assert mount == {"name": "shards", "mountPath": "/etc/reput/shards", "readOnly": True}
        for file, text in manifests["ConfigMap", volumes["shards"]["configMap"]["name"]]["data"].items():
            (tmp_path / file).write_text(text)
        assert list(shards_of(tmp_path / path.name)) == ["a", "b"]
        assert service == "console" or data["REPUT_CLIENT_SHARDS_FILE"] == str(path)


def test_addresses_are_services_of_the_releases() -> None:
    """All releases have the same file, and each address in it is a Service of the release that it names."""
    stores = {name: objects(f"shop-{name}", *TWO, *STORE) for name in "ab"}
    files = [shards_in(stores["a"], "shop-a"), shards_in(stores["b"], "shop-b")]
    assert files == [shards_in(objects("shop", *TWO, *GATEWAYS), "shop")] * 2
    for name, shard in files[0].items():
        assert shard.takes_topics
        for service in ("commitlog", "indexer", "delivery", "janitor"):
            host, _, port = getattr(shard, service).partition(":")
            assert host == f"shop-{name}-reput-{service}.store.svc"
            ports = stores[name]["Service", host.removesuffix(".store.svc")]["spec"]["ports"]
            assert int(port) in [one["port"] for one in ports]


def test_copies_of_a_shard_are_all_in_the_file() -> None:
    """A shard with copies of its log has the addresses of all pods, in its own namespace."""
    far = shards_in(objects("shop", *FAR, *GATEWAYS), "shop")["b"]
    own = objects("shop-b", *FAR, *STORE, "commitlog.replicas=3", namespace="far")
    assert shards_in(own, "shop-b")["b"] == far
    for service in ("commitlog", "indexer", "delivery", "janitor"):
        headless = f"shop-b-reput-{service}-headless"
        names = [f"shop-b-reput-{service}-{pod}.{headless}.far.svc:{PORTS[service]}" for pod in range(3)]
        assert getattr(far, service).split(",") == names
        assert own["StatefulSet", f"shop-b-reput-{service}"]["spec"]["serviceName"] == headless


def test_a_shard_may_be_outside() -> None:
    """A shard may have addresses instead of a release, and take no new topics."""
    places = {"commitlog": r"c1.example:7101\,c2.example:7101", "indexer": "i:7102", "delivery": "d.example:17104"}
    outside = [f"shards.old.{service}={place}" for service, place in places.items()]
    found = shards_in(objects("shop", *TWO, *GATEWAYS, *outside, "shards.old.takesTopics=false"), "shop")
    wanted = {service: place.replace("\\", "") for service, place in places.items()}
    assert found["old"] == Shard(**wanted, takes_topics=False)


def test_gateways_may_be_alone() -> None:
    """Without a store a release has gateways and the file, and `helm test` asks all shards."""
    for values in ([], ["commitlog.replicas=3"], ["janitor.enabled=false"]):
        manifests = objects("shop", *TWO, *GATEWAYS, *values)
        assert {name for _, name in manifests} == {
            "shop-reput", "shop-reput-gateway", "shop-reput-gateway-metrics", "shop-reput-shards", "shop-reput-test"
        }  # fmt: skip
        (test,) = dict(pods(manifests))["shop-reput-test"]["containers"]
        assert test["args"][0].splitlines()[-1] == "reput shards list"
        variables = {one["name"]: one["value"] for one in test["env"]}
        assert variables["REPUT_CLIENT_SHARDS_FILE"] == "/etc/reput/shards/shards.toml"
        assert "/etc/reput/shards" in [mount["mountPath"] for mount in test["volumeMounts"]]
    (test,) = dict(pods(objects("shop-a", *TWO, *STORE)))["shop-a-reput-test"]["containers"]
    assert "topic=reput-helm-test-shop-a\n" in test["args"][0], "each shard has a topic of its own for it"


def test_a_changed_file_restarts_its_readers_alone() -> None:
    """Another shard restarts the gateways and the Delivery, and the log and its index go on."""
    before, after = (objects("shop-a", *TWO, *more) for more in ([], ["shards.c.release=shop-c"]))
    changed = set()
    for key, item in before.items():
        if key[0] in ("Deployment", "StatefulSet") and item != after[key]:
            changed.add(key[1])
            old, new = (one["spec"]["template"]["metadata"]["annotations"] for one in (item, after[key]))
            assert {name for name in old if old[name] != new[name]} == {"checksum/shards"}
    assert changed == {"shop-a-reput-gateway", "shop-a-reput-delivery"}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector of labels selects these labels."""
    listed = all(one["operator"] == "In" for one in selector.get("matchExpressions", []))
    assert listed, "no other operator is needed"
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", [])
    )


class Site:
    """Releases in their namespaces, and which of their pods the network policies let reach which."""

    def __init__(self, *releases: tuple[str, str, list[str]]) -> None:
        self._policies, self._labels = [], {}
        for release, namespace, values in releases:
            manifests = objects(release, *values, namespace=namespace)
            for (kind, name), item in manifests.items():
                if kind == "NetworkPolicy":
                    self._policies.append((namespace, item["spec"]))
                elif kind in ("StatefulSet", "Deployment"):
                    self._labels[name] = (namespace, item["spec"]["template"]["metadata"]["labels"])
                elif kind == "Pod":
                    self._labels[name] = (namespace, item["metadata"]["labels"])

    def may_call(self, caller: str, callee: str) -> bool:
        """Whether the policies of both pods permit calls to the service's port."""
        port = PORTS[callee.rpartition("-")[2]]
        return self._permits("egress", "to", caller, callee, port) and self._permits(
            "ingress", "from", callee, caller, port
        )

    def _permits(self, way: str, peers: str, pod: str, other: str, port: int) -> bool:
        namespace, labels = self._labels[pod]
        found = [spec for at, spec in self._policies if at == namespace and selects(spec["podSelector"], labels)]
        return not found or any(
            port in [one["port"] for one in rule["ports"]]
            and any(self._selects(peer, namespace, other) for peer in rule.get(peers, []))
            for spec in found
            for rule in spec[way]
        )

    def _selects(self, peer: Mapping[str, Any], namespace: str, pod: str) -> bool:
        at, labels = self._labels[pod]
        place = peer.get("namespaceSelector")
        is_there = at == namespace if place is None else selects(place, {"kubernetes.io/metadata.name": at})
        return is_there and selects(peer.get("podSelector", {}), labels)


def test_policies_let_shards_reach_each_other() -> None:
    """The gateways reach all services of all shards, Deliveries reach each other, and nothing else is open."""
    closed = [*FAR, "networkPolicy.clients=null", "networkPolicy.metricsClients=null"]
    site = Site(
        ("shop-a", "store", [*closed, *STORE]),
        ("shop-b", "far", [*closed, *STORE, "commitlog.replicas=3"]),
        ("shop", "store", [*closed, *GATEWAYS, "console.enabled=true"]),
    )
    services = ("commitlog", "indexer", "janitor", "delivery")
    for shard in ("shop-a-reput", "shop-b-reput"):
        for service in services:
            for caller in ("shop-reput-gateway", "shop-reput-console", "shop-reput-test"):
                assert site.may_call(caller, f"{shard}-{service}"), (caller, shard, service)
    for own, other in (("shop-a-reput", "shop-b-reput"), ("shop-b-reput", "shop-a-reput")):
        calls = {(one, two) for one in services for two in services if site.may_call(f"{own}-{one}", f"{other}-{two}")}
        assert calls == {("delivery", "delivery")}
        near = {(one, two) for one in services for two in services if site.may_call(f"{own}-{one}", f"{own}-{two}")}
        assert {("indexer", "commitlog"), ("delivery", "indexer")} <= near


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([TRUST, r"shards.a\.b.release=x"], "'a.b'"),
        ([TRUST, f"shards.{'a' * 101}.release=x"], "does not match pattern"),
        ([TRUST, "shards.a.commitlog=x:1", "shards.a.delivery=y:1"], "at '/shards/a': missing property 'indexer'"),
        ([TRUST, "shards.a.takesTopics=true"], "'commitlog', 'indexer', 'delivery'"),
        ([TRUST, "shards.a.release=X"], "/shards/a/release"),
        ([TRUST, "shards.a.release=x", "shards.a.replicas=0"], "/shards/a/replicas"),
        ([TRUST, "shards.a.release=x", "shards.a.commitlog=x:1"], "/shards/a/commitlog"),
        ([TRUST, "shards.a.place=x"], "place"),
        ([*TWO, "shards.b.namespace=far"], "at '/shards/a': missing property 'namespace'"),
        ([*TWO, "shards.c.commitlog=c", "shards.c.indexer=c:1", "shards.c.delivery=c:2"], "/shards/c/commitlog"),
        ([*TWO, "shards.c.commitlog=c:1", 'shards.c.indexer=c:"1', "shards.c.delivery=c:2"], "/shards/c/indexer"),
        ([*TWO, "shards.c.release=shop-a"], "shards: a and c both have shop-a-reput-commitlog.store.svc:7101"),
        ([*TWO, "shards.c.commitlog=c:1", "shards.c.indexer=c:2", "shards.c.delivery=c:1"], "c and c both have c:1"),
        ([*TWO, "shards.a.takesTopics=false", "shards.b.takesTopics=false"], "no shard takes topics"),
        (["shards.a.release=shop"], "/trust/secretName"),
        ([*TWO, "delivery.enabled=false", *STORE], "/delivery/enabled"),
        ([*TWO, "shards.c.release=shop", "commitlog.replicas=3"], "replicas must be commitlog.replicas of release"),
        ([*TWO, "shards.c.release=shop", "fullnameOverride=x"], "with fullnameOverride give the addresses"),
        ([*TWO, "shards.c.release=shop", *GATEWAYS], "shards.c: release shop has no store"),
        (GATEWAYS, "/shards"),
        ([*TWO, *GATEWAYS, *STORE], "/gateway/enabled"),
        (["console.config.shards_file=/x"], "shards_file"),
        ([*TWO, *GATEWAYS, "backup.enabled=true", "backup.destination=s3://b"], "/backup/enabled"),
        (["gateway.config.shards_file=/x"], "shards_file"),
        (["delivery.config.shards_file=/x"], "shards_file"),
        (["gateway.extraVolumes[0].name=shards"], "a name that the chart does not use itself"),
    ],
)
def test_wrong_shards_are_refused(values: list[str], reason: str) -> None:
    """A bad name, a missing address, a shard twice and a release that does not fit are named before an installation."""
    finished = run(tool("helm"), "template", *command("shop", *values), must_succeed=False)
    assert finished.returncode != 0
    assert reason in finished.stderr


@pytest.mark.parametrize(
    ("release", "values", "present", "absent"),
    [
        ("shop", [*TWO, *GATEWAYS], "exec deploy/shop-reput-gateway -- reput shards list", "CommitLog"),
        ("shop-a", [*TWO, *STORE], "In the pods of their gateways `reput shards` knows them all.", "no shard has"),
        ("shop-c", [*TWO, *STORE], "no shard has the CommitLog of this release, shop-c", "shop-c-reput-gateway"),
        ("shop", [], "port-forward svc/shop-reput-commitlog", "shards"),
    ],
    ids=["gateways", "store", "stranger", "no-shards"],
)  # fmt: skip
def test_notes_name_the_next_command(
    release: str, values: list[str], present: str, absent: str, tmp_path: Path
) -> None:
    """The notes after an installation have the command that lists the shards, and name a store that is no shard."""
    chart = tmp_path / "reput"
    shutil.copytree(CHART, chart)
    shown = '{kind: Notes, metadata: {name: n}, text: {{ include "reput/templates/NOTES.txt" . | toJson }}}\n'
    (chart / "templates/shown.yaml").write_text(shown)
    words = ["template", "--show-only", "templates/shown.yaml", *command(release, *values, chart=chart)]
    text = yaml.safe_load(run(tool("helm"), *words).stdout)["text"]
    assert present in text
    assert absent not in text


def test_commands_of_the_page(tmp_path: Path) -> None:
    """The page's commands install two shards, join a third and remove it, each with the file of that step."""
    page = (ROOT / "docs/kubernetes.md").read_text().partition("\n## Shards\n")[2].partition("\n## ")[0]
    values: dict[str, Any] = {}
    file, seen = tmp_path / "store.yaml", []
    for kind, block in re.findall(r"```(yaml|sh)\n(.*?)```", page, re.DOTALL):
        if kind == "yaml":
            found = yaml.safe_load(block)
            values = found if "shards" in found else {**values, "shards": {**values["shards"], **found}}
            continue
        for name, shard in list(values["shards"].items()):
            if f"helm uninstall {shard['release']}\n" in block:
                del values["shards"][name]
        file.write_text(yaml.safe_dump(values))
        for verb, release, words in re.findall(r"^helm (install|upgrade) (\S+) (.*)$", block, re.MULTILINE):
            chart, *options = shlex.split(words.replace("store.yaml", str(file)), comments=True)
            manifests = objects_of(release, ROOT / chart, *options, "--kube-version", KUBERNETES_VERSION)
            assert (("StatefulSet", f"{release}-reput-commitlog") in manifests) is (release != "shop")
            assert (("Deployment", f"{release}-reput-gateway") in manifests) is (release == "shop")
            shards = shards_in(manifests, release)
            seen.append((verb, release, [name for name, shard in shards.items() if shard.takes_topics], len(shards)))
    first = [("install", release, ["a", "b"], 2) for release in ("shop-a", "shop-b", "shop")]
    joined = [("upgrade", release, ["a", "b", "c"], 3) for release in ("shop-a", "shop-b", "shop")]
    drained, removed = ("upgrade", "shop", ["a", "b"], 3), [("upgrade", *rest) for _, *rest in reversed(first)]
    assert seen == [*first, ("install", "shop-c", ["a", "b", "c"], 3), *joined, drained, *removed]
