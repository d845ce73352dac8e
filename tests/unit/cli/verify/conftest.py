# SPDX-License-Identifier: Apache-2.0
"""Copies of a small real store for each test."""

import shutil
from pathlib import Path

import pytest

from tests.unit.cli.verify.made_store import make_store


@pytest.fixture(scope="session")
def made_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that all tests copy; never to be changed."""
    path = tmp_path_factory.mktemp("made") / "store"
    make_store(path)
    return path


@pytest.fixture
def store(made_store: Path, tmp_path: Path) -> Path:
    """A copy of the store that may be damaged."""
    return shutil.copytree(made_store, tmp_path / "store")
