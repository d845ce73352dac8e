# SPDX-License-Identifier: Apache-2.0
"""A small part of `make attack`: hostile requests to every method, and the memory that greedy clients take."""

import dataclasses
import os
import random
from pathlib import Path

import pytest

from libs.runtime.trust.roles import ROLES
from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2
from tests.attack import fuzz
from tests.attack.hostile import targets
from tests.attack.row import violations
from tests.attack.rows import MEMORY, ROWS, run

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FUZZ_COUNT = 2_500
SECONDS = 2.0
SMALL_ROWS = (
    "refused_requests", "scans_that_do_not_read", "broken_frames", "receives_that_do_not_read", "silent_readers",
    "forged_requests",
)  # fmt: skip
SERVICE = messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"]


def test_every_method_is_attacked() -> None:
    """Every method of every service is among the targets.

    This includes the methods of RocketMQ's protocol, of health and of reflection.
    """
    paths = {target.path for target in targets()}
    assert set(ROLES) <= paths
    assert {f"/{SERVED_AS}/{method.name}" for method in SERVICE.methods} <= paths
    assert {"/grpc.health.v1.Health/Check", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"} <= paths


@pytest.mark.timeout(300)
async def test_hostile_requests(tmp_path: Path) -> None:
    """Each hostile request is answered with a reason, none with a bug, and the store does not change."""
    seed = int(os.environ.get("REPUT_SEED", random.SystemRandom().getrandbits(31)))
    print(f"repeat with REPUT_SEED={seed}")
    report = await fuzz.run(tmp_path, seed=seed, count=FUZZ_COUNT)
    assert report.violations == []
    assert report.request_count >= FUZZ_COUNT


@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", [row for row in ROWS if row.name in SMALL_ROWS], ids=lambda row: row.name)
async def test_greedy_clients(tmp_path: Path, row: object) -> None:
    """A short visit of each greedy client costs bounded memory, which is freed, and fails no other client's call."""
    whole = next(one for one in ROWS if one is row)
    short = dataclasses.replace(whole, seconds=SECONDS, checks=MEMORY)
    assert violations(short, await run(short, tmp_path, calm_s=SECONDS)) == []
