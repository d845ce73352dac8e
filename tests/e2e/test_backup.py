# SPDX-License-Identifier: Apache-2.0
"""Backups and restores of a real store: what comes back, and what a kill at any moment leaves."""

import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from cli.commands.backups.backup import NICENESS
from libs.formats.store_layout import RESTORING
from tests.support.backups import check_sound, created, fill, messages, positions, restored
from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, Store, run, run_here, start, store

pytestmark = pytest.mark.e2e

KILL_COUNT = 6
LONG_KILL_COUNT = 130
"""A command that ends before its kill does not count: over 100 kills of these rounds."""
COMMANDS = ("create", "prune", "restore")
WORK_S = {"create": 0.5, "prune": 0.01, "restore": 0.2}
"""The longest delay of a kill, from the first change on the disk."""
START_SHARE = 0.1
"""Share of the kills that count their delay from the start of the process."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store for all tests."""
    with store(tmp_path_factory.mktemp("store")) as running:
        fill(running, 0)
        yield running


def test_a_restored_store_is_the_store(running: Store, tmp_path: Path) -> None:
    """All messages and positions of groups are there; it takes messages in an epoch of its own."""
    backup = created(running, tmp_path / "place")
    before, places = messages(running), positions(running)
    made = restored(tmp_path / "place", tmp_path / "again")
    for path in (*(tmp_path / "place").rglob("*"), *(tmp_path / "again").rglob("*")):
        assert not path.stat().st_mode & 0o077, f"other users may read {path}"
    assert made["end_physical_offset"] == backup["end_physical_offset"]
    assert made["history_id"] != backup["history_id"]
    compared = run_here("verify", str(tmp_path / "again"), "--against", str(running.data_dir), "--allow-running")
    assert "0 faults" in compared.output
    with store(tmp_path / "again") as again:
        assert messages(again) == before
        assert positions(again) == places
        assert again.run("put", "orders", "new").code == 0
        assert again.stop().code in (0, 130)
    check_sound(tmp_path / "again")


def test_restores_at_random_offsets(running: Store, tmp_path: Path) -> None:
    """A restore at an offset has what a reader saw up to there, and no group behind its end."""
    backup = created(running, tmp_path / "place")
    before = messages(running)
    chance = random.Random(7)
    end = int(str(backup["end_physical_offset"]))
    for number, offset in enumerate([0, *(chance.randrange(1, end) for _ in range(2))]):
        data_dir = tmp_path / str(number)
        made = restored(tmp_path / "place", data_dir, "--offset", str(offset))
        cut = int(str(made["end_physical_offset"]))
        assert cut <= offset
        expected = {queue: [one for one in rows if one[0] < cut] for queue, rows in before.items()}
        with store(data_dir) as again:
            if cut:
                assert messages(again) == expected
                for _, _, queue, at in positions(again):
                    assert int(str(at)) <= len(expected[int(str(queue))])
            assert again.run("put", "orders", "new").code == 0
            again.stop()
        check_sound(data_dir)


def test_restores_up_to_a_time(running: Store, tmp_path: Path) -> None:
    """Records that were stored later are left out, also whole topics' first ones."""
    time.sleep(0.05)
    moment_ms = round(time.time() * 1000)
    time.sleep(0.05)
    running.json("put", "later", "x")
    backup = created(running, tmp_path / "place")
    made = restored(tmp_path / "place", tmp_path / "again", "--until", str(moment_ms))
    assert int(str(made["end_physical_offset"])) < int(str(backup["end_physical_offset"]))
    compared = run_here("verify", str(tmp_path / "again"), "--only", "log")
    assert compared.code == 0


def test_a_time_outside_of_the_backup_is_told(running: Store, tmp_path: Path) -> None:
    """A restore to a time before the first record, or after the backup, is done, with a warning."""
    created(running, tmp_path / "place")
    for until, text in (("+5h", "it has no later message than its own"), ("0", "the restored store has no message")):
        command = ["--from", str(tmp_path / "place"), "--data-dir", str(tmp_path / until), "--until", until]
        found = run_here("restore", *command, "--json")
        assert found.code == 0
        assert text in " ".join(found.errors.split())


def test_only_new_bytes_move(running: Store, tmp_path: Path) -> None:
    """The second backup moves nothing, the third the new records and the small files that changed."""
    place = tmp_path / "place"
    first = created(running, place)
    assert int(str(first["new_bytes"])) >= int(str(first["log_bytes"]))
    again = created(running, place)
    assert again["new_bytes"] == 0
    running.json("put", "orders", "y" * 5_000)
    third = created(running, place)
    new = int(str(third["end_physical_offset"])) - int(str(again["end_physical_offset"]))
    assert new <= int(str(third["new_bytes"])) <= new + 20_000
    listed = run_here("backup", "list", "--from", str(place), "--json").rows
    assert [row["backup_id"] for row in listed] == [first["backup_id"], again["backup_id"], third["backup_id"]]


def test_a_backup_lets_the_services_go_first(running: Store, tmp_path: Path) -> None:
    """The process of a running `create` has a lower priority than the process that started it."""
    place = tmp_path / "place"
    command = ["backup", "create", "--to", str(place), "--rate-mib-s", "0.001"]
    with start([*REPUT, *command], running.client_environment(), stdout=subprocess.DEVNULL) as process:
        try:
            deadline_s = time.monotonic() + LIMIT_S
            while not (place / "incomplete").is_dir() and time.monotonic() < deadline_s:
                time.sleep(0.05)
            assert psutil.Process(process.pid).nice() == min(psutil.Process().nice() + NICENESS, 19)
        finally:
            process.kill()


def test_what_is_refused(running: Store, tmp_path: Path) -> None:
    """A directory with anything in it, an unknown backup, an offset outside, a harmed object."""
    place = tmp_path / "place"
    backup = created(running, place)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("x")
    asked = ("restore", "--from", str(place), "--data-dir")
    refused = run_here(*asked, str(full))
    assert refused.code == 1
    assert "is not empty: it has mine" in refused.errors
    assert [path.name for path in full.iterdir()] == ["mine"]
    assert run_here(*asked, str(tmp_path / "a"), "--backup", "20200101T000000Z-1").code == 3
    outside = run_here(*asked, str(tmp_path / "b"), "--offset", str(int(str(backup["end_physical_offset"])) + 1))
    assert "is outside of backup" in outside.errors
    assert run_here("backup", "list", "--from", str(tmp_path / "none")).code == 1
    assert run_here("backup", "prune", "--from", str(place)).code == 1
    victim = max((place / "objects").rglob("*"), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    for command in (("backup", "verify", "--from", str(place)), (*asked, str(tmp_path / "c"))):
        harmed = run_here(*command)
        assert harmed.code == 6
        assert victim.name in harmed.errors


def killed(command: list[str], environment: dict[str, str], has_begun: Callable[[], bool], delay_s: float) -> bool:
    """Run a command, and kill it a delay after the begin of its work. Returns whether it was killed."""
    process = start(
        [*REPUT, *command], environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with process:
        while process.poll() is None and not has_begun():
            time.sleep(0.0005)
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
        return False


@dataclass
class Killing:
    """Rounds of kills. `kills` and `in_work` count the kills, and those that left an unfinished work, by command."""

    running: Store
    place: Path
    chance: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    in_work: Counter[str] = field(default_factory=Counter)

    def round(self, number: int, folder: Path) -> None:
        """Kill a command; then all complete backups are sound, and the newest of them restores."""
        name, place = COMMANDS[number % len(COMMANDS)], str(self.place)
        target = folder / f"restored-{number}"
        if name != "restore":
            fill(self.running, number % 7, 300)
        if name == "prune":
            created(self.running, self.place)
        command = {
            "create": ["backup", "create", "--to", place, "--rate-mib-s", "1"],
            "prune": ["backup", "prune", "--from", place, "--keep", "1"],
            "restore": ["restore", "--from", place, "--data-dir", str(target)],
        }[name]
        before = self.state(target)
        delay_s = self.chance.uniform(0, WORK_S[name])
        if self.chance.random() < START_SHARE:
            self.kills[name] += killed(command, self.running.client_environment(), lambda: True, delay_s)
        else:
            environment = self.running.client_environment()
            self.kills[name] += killed(command, environment, lambda: self.state(target) != before, delay_s)
        self.in_work[name] += {
            "create": any((self.place / "incomplete").iterdir()),
            "prune": bool(self.orphans()),
            "restore": (target / RESTORING).exists(),
        }[name]
        verified = run_here("backup", "verify", "--from", place, "--all")
        assert verified.code == 0, verified
        if target.exists() and not (target / "commitlog").exists():
            refused = run("serve", "commitlog", "--data-dir", str(target), "--port", "0")
            assert refused.code != 0, refused
        else:
            target = folder / f"whole-{number}"
        restored(place, target)
        shutil.rmtree(target)
        shutil.rmtree(folder / f"restored-{number}", ignore_errors=True)

    def state(self, target: Path) -> tuple[list[Path], list[Path], bool]:
        """Return the part of the disk that each command changes first."""
        lists, manifests = (sorted((self.place / name).glob("*.json")) for name in ("incomplete", "backups"))
        return lists, manifests, (target / RESTORING).exists()

    def orphans(self) -> set[str]:
        """Return the objects that no manifest names."""
        text = "".join(
            path.read_text() for folder in ("backups", "incomplete") for path in (self.place / folder).iterdir()
        )
        return {path.name for path in (self.place / "objects").rglob("*") if path.is_file() and path.name not in text}

    def end(self) -> None:
        """A last backup and a last prune leave nothing behind."""
        created(self.running, self.place)
        assert run_here("backup", "prune", "--from", str(self.place), "--keep", "1").code == 0
        assert not list((self.place / "incomplete").iterdir())
        assert not self.orphans()
        print(f"kills {dict(self.kills)}, of them with unfinished work {dict(self.in_work)}")


def kill_rounds(running: Store, folder: Path, count: int) -> Killing:
    """Kill backups, prunes and restores at random moments."""
    killing = Killing(running, folder / "place", random.Random(11))
    created(running, killing.place)
    for number in range(count):
        killing.round(number, folder)
    killing.end()
    return killing


def test_kills(running: Store, tmp_path: Path) -> None:
    """Some kills."""
    assert kill_rounds(running, tmp_path, KILL_COUNT).kills.total() > 0


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_kills(running: Store, tmp_path: Path) -> None:
    """A hundred kills."""
    killing = kill_rounds(running, tmp_path, LONG_KILL_COUNT)
    assert all(killing.in_work[name] for name in COMMANDS), killing.in_work
