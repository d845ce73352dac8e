# SPDX-License-Identifier: Apache-2.0
"""Harm to disks and to what retention knows, with the cures of the runbook. Some drills mount a small disk, as root."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reput_client import connect

from tests.alarms import site
from tests.alarms.drill import Cure, Opened
from tests.alarms.load import TOPIC, repeated
from tests.alarms.site import Site
from tests.crash.fault.small_disk import SmallDisk
from tests.support.surroundings import free_port

ROOM_BYTES = 4 << 30
"""The log has so much room above its reserve. A change of the disk by other programs is smaller."""
DISK_SIZE_BYTES = 512 << 20
FORECAST_PERCENT = 82
"""A disk that is used so much, and grows, will be full."""
GROWTH_BYTES = 32 << 10
"""Growth in each tenth of a second: 4 % of the disk in a minute."""
JANITOR_PERCENTS = ("--disk-max-used-percent", "75", "--disk-forcible-percent", "85", "--disk-full-percent", "90")
LOOKS_OFTEN = ("--first-check-delay-ms", "0", "--check-interval-ms", "1000", "--topic-check-interval-ms", "1000")


@contextmanager
def on_small_room(folder: Path) -> Iterator[Site]:
    """Start a store whose log has little room above its reserve."""
    reserve_bytes = max(0, shutil.disk_usage(folder).free - ROOM_BYTES)
    with site.stopping(site.store(folder, log_flags=("--disk-reserve-bytes", str(reserve_bytes)))) as made:
        yield made


def on_own_disk(used_percent: int) -> Opened:
    """Return how a store is started on a disk of its own, of which so much is used."""

    @contextmanager
    def opened(folder: Path) -> Iterator[Site]:
        disk = SmallDisk(folder, "tmpfs", DISK_SIZE_BYTES)
        try:
            _fill(disk.root, used_percent)
            flags = (*JANITOR_PERCENTS, *LOOKS_OFTEN)
            with site.stopping(site.store(disk.root, janitor_flags=flags)) as made:
                yield made
        finally:
            disk.unmount()

    return opened


@contextmanager
def looking_often(folder: Path) -> Iterator[Site]:
    """Start a store whose Janitor looks each second."""
    with site.stopping(site.store(folder, janitor_flags=LOOKS_OFTEN)) as made:
        yield made


def fill_room(made: Site) -> Cure:
    """Fill the room above the reserve with a file. The cure removes it."""
    file = _disk(made) / "filling"
    with file.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, 2 * ROOM_BYTES)
    return file.unlink


def fill_disk(made: Site) -> Cure:
    """Fill the disk above the limit of the Janitor. The cure gives it room."""
    return _fill(_disk(made), 95).unlink


def fill_slowly(made: Site) -> Cure:
    """Let a file on the disk grow. The cure removes what fills the disk."""
    is_over = threading.Event()

    def grow() -> None:
        if not is_over.is_set():
            with (_disk(made) / "growing").open("ab") as file:
                file.write(bytes(GROWTH_BYTES))

    made.loads.enter_context(repeated(grow, 0.1))

    def cure() -> None:
        is_over.set()
        (_disk(made) / "filling").unlink()

    return cure


def lose_log(made: Site) -> Cure:
    """Kill the Indexer, and start it with a wrong address of its log. The cure corrects it."""
    log, index = made.services["commitlog"], made.services["indexer"]
    with connect(commitlog=log.target, indexer=index.target) as client, client.producer() as producer:
        client.topics.create(TOPIC, retention_hours=1_000)
        client.query.wait_indexed(producer.send(TOPIC, b"a message").result(30))
    index.restart_unready("--commitlog-target", f"127.0.0.1:{free_port()}")
    return index.kill


def _disk(made: Site) -> Path:
    return made.services["commitlog"].data_dir.parent


def _fill(folder: Path, used_percent: int) -> Path:
    """Use so much of a disk, with a file, whose path is returned."""
    usage = shutil.disk_usage(folder)
    file = folder / "filling"
    with file.open("ab") as opened:
        os.posix_fallocate(opened.fileno(), opened.tell(), usage.total * used_percent // 100 - usage.used)
    return file
