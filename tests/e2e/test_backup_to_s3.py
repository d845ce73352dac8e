# SPDX-License-Identifier: Apache-2.0
"""Backups in object storage, also while the storage fails."""

import os
import random
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.test_backup import messages
from tests.support.faulty_s3 import FAULTS, faulty, s3
from tests.support.reput_up import run_here, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PLACE = "s3://bucket/shop"
TRY_COUNT = 4


def test_storage_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ends with success or with an error that names the place, and what it says is there is sound."""
    seed = int(os.environ.get("REPUT_SEED", random.SystemRandom().getrandbits(31)))
    print(f"repeat with REPUT_SEED={seed}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with s3() as port, faulty(port, seed) as proxy, store(tmp_path / "store") as running:
        good = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{good}/bucket", method="PUT"))
        made = 0
        for number in range(TRY_COUNT):
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
            assert running.run("put", "orders", f"{number}-" + "x" * 10_000).code == 0
            result = running.run("backup", "create", "--to", PLACE, "--rate-mib-s", "0")
            assert result.code == 0 or PLACE in result.errors, result
            made += result.code == 0
            run_here("backup", "prune", "--from", PLACE, "--keep", "3")
            monkeypatch.setenv("AWS_ENDPOINT_URL", good)
            if made:
                verified = run_here("backup", "verify", "--from", PLACE, "--all")
                assert verified.code == 0, verified
        before = messages(running)
        monkeypatch.setenv("AWS_ENDPOINT_URL", good)
        assert running.run("backup", "create", "--to", PLACE, "--rate-mib-s", "0").code == 0
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        while (result := run_here("restore", "--from", PLACE, "--data-dir", str(tmp_path / "again"))).code:
            assert PLACE in result.errors, result
    assert made
    assert set(proxy.counts) == {*FAULTS, "good"}
    with store(tmp_path / "again") as again:
        assert messages(again) == before
