# SPDX-License-Identifier: Apache-2.0
"""The door and the services behind it are killed while clients call: a client repeats its call, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client
from reput_client import NewMessage

from tests.support.fixed_service import FixedService

pytestmark = [pytest.mark.e2e]

COUNT, DOOR_KILLS, LOG_KILLS = 60, (10, 30), (20, 40)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[FixedService, FixedService]]:
    """A CommitLog and a gateway before it."""
    log = FixedService("commitlog", tmp_path / "log")
    targets = ("--commitlog-target", log.target, "--indexer-target", "", "--janitor-target", "")
    gateway = FixedService("gateway", tmp_path / "gateway", *targets)
    try:
        yield log.start(), gateway.start()
    finally:
        gateway.stop()
        log.stop()


def test_kills_of_both(services: tuple[FixedService, FixedService]) -> None:
    """Messages with ids that are sent through the door are stored once, whatever is killed meanwhile."""
    log, gateway = services
    with reput_client.connect(commitlog=gateway.target) as client:
        for number in range(COUNT):
            if number in DOOR_KILLS:
                gateway.kill()
            if number in LOG_KILLS:
                log.kill()
            sent = client.send_once(f"id-{number}", NewMessage("t", b"%d" % number, queue_id=0))
            assert sent.queue_offset == number
    assert gateway.kill_count == len(DOOR_KILLS)
    assert log.kill_count == len(LOG_KILLS)
