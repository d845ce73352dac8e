# SPDX-License-Identifier: Apache-2.0
"""The user-agent of each client has the version of its package, or of the Python client where a package has none."""

import json
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / "clients"


def _python() -> str:
    return str(tomllib.loads((CLIENTS / "python/pyproject.toml").read_text())["project"]["version"])


def _server() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _java() -> str:
    found = ElementTree.parse(CLIENTS / "java/pom.xml").getroot().find("{http://maven.apache.org/POM/4.0.0}version")
    assert found is not None
    return str(found.text)


def _node() -> str:
    return str(json.loads((CLIENTS / "node/package.json").read_text())["version"])


@pytest.mark.parametrize(
    ("language", "file", "version"),
    [
        ("python", "python/src/reput_client/core/options.py", _python),
        ("go", "go/options.go", _python),
        ("java", "java/src/main/java/reput/client/Connections.java", _java),
        ("node", "node/src/channels.ts", _node),
        ("service", "../libs/runtime/http2/calling/outcome.py", _server),
    ],
)
def test_the_user_agent_has_the_version(language: str, file: str, version: object) -> None:
    """`reput clients` shows it, so it must be true."""
    assert callable(version)
    assert re.findall(rf'"reput-{language}/([^"]+)"', (CLIENTS / file).read_text()) == [version()]
