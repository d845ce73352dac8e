# SPDX-License-Identifier: Apache-2.0
"""A service loads no module that its start does not need: each costs processor time in every start."""

import tomllib

import pytest

from libs.runtime.config import SECTIONS
from libs.runtime.version import VERSION
from tests.support.modules import ROOT, modules_after

NEEDED_LATER = {
    "difflib",
    "email",
    "google.protobuf.json_format",
    "grpc_health.v1.health",
    "grpc_reflection.v1alpha.reflection",
    "http.server",
    "importlib.metadata",
    "libs.runtime.sentences",
    "opentelemetry",
    "prometheus_client",
    "tomllib",
}
"""Modules for the help, errors, metrics, traces, audits, reflection and files of settings."""
ARROWS = {"numpy", "pyarrow"}
NOT_OF = {
    "commitlog": {
        "pyarrow",
        "services.commitlog.engine.elect.member",
        "services.commitlog.rpc.coordinate.etcd",
        "services.commitlog.rpc.coordinate.kubernetes",
    },
    "indexer": {"pyarrow"},
    "janitor": ARROWS,
    "delivery": ARROWS,
    "gateway": ARROWS,
    "console": ARROWS,
}
CODE = """
from libs.runtime import process
from libs.runtime.rpc.fronts import in_loop
from services.{service} import bootstrap
process.parse({arguments}, section="{service}", settings_class=bootstrap.Settings, environment={{}})
"""


@pytest.mark.parametrize("service", SECTIONS)
def test_a_start_loads_no_module_for_later(service: str) -> None:
    """A service with settings from flags alone has none of these modules when it begins to open its store."""
    arguments = ["--data-dir", "store"] if service in {"commitlog", "indexer", "janitor"} else ["--port", "1"]
    loaded = modules_after(CODE.format(service=service, arguments=arguments))
    assert f"services.{service}.bootstrap" in loaded
    unneeded = loaded & (NEEDED_LATER | NOT_OF[service])
    assert not unneeded


def test_the_version_is_that_of_the_package() -> None:
    """The version in the source, which no start looks up, is that of pyproject.toml."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
