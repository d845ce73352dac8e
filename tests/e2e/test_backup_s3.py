# SPDX-License-Identifier: Apache-2.0
"""Backups in object storage: a server that fails for a moment, and a server that fails for good."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.backup.errors import BackupDamaged, PlaceFailed
from cli.backup.object_storage import ObjectStorage
from tests.support.backups import created, fill, restored
from tests.support.faulty_s3 import CREDENTIALS, PASSING, Fault, FaultyS3, faulty_s3
from tests.support.reput_up import Result, Store, run_here, store

pytestmark = pytest.mark.e2e

BODY = os.urandom(1 << 20)
FAULT_SHARE = 0.25
SHORT_S = 0.4
"""Below the time that a slow answer takes."""


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyS3]:
    """A common server for all tests; each has a prefix of its own."""
    with pytest.MonkeyPatch.context() as patch, faulty_s3() as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store."""
    with store(tmp_path_factory.mktemp("store")) as running:
        fill(running, 0)
        yield running


def run(*arguments: str) -> Result:
    """Run a command that needs no store."""
    return run_here(*arguments, extra=CREDENTIALS)


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: fault.name)
def test_every_request_is_repeated(server: FaultyS3, fault: Fault) -> None:
    """Each kind of request ends well when the first tries of it have a fault."""
    place = ObjectStorage(server.url(f"each-{fault.name}", timeout_s=SHORT_S if fault is Fault.SLOW else 60))

    def first_two(number: int) -> Fault:
        return fault if number < 2 else Fault.NONE

    server.treat(first_two)
    place.write("objects/aa/one", BODY)
    server.treat(first_two)
    assert place.read("objects/aa/one") == BODY
    server.treat(first_two)
    assert place.sizes("objects") == {"aa/one": len(BODY)}
    server.treat(first_two)
    place.delete("objects/aa/one")
    assert len(server.requests) >= 3
    server.treat(first_two)
    place.delete("objects/aa/one")
    server.treat(first_two)
    assert place.sizes("objects") == {}
    with pytest.raises(BackupDamaged, match="objects/aa/one is missing"):
        place.read("objects/aa/one")


def test_a_list_is_as_long_as_it_is(server: FaultyS3) -> None:
    """More objects than an answer has (1,000) are all listed."""
    server.treat(lambda _number: Fault.NONE)
    names = [f"{number:04}" for number in range(2_100)]
    server.put_at_once("many/objects", names)
    assert ObjectStorage(server.url("many")).sizes("objects") == dict.fromkeys(names, 1)
    assert len(server.requests) == 3


def test_errors_for_good_say_what_failed(server: FaultyS3) -> None:
    """A refused request fails at once, others after the time for retries; the error has the object and the reason."""
    place = ObjectStorage(server.url("for-good", retry_s=0.1, timeout_s=0.2))
    for fault in (*PASSING, Fault.REFUSED):
        server.treat(lambda _number, fault=fault: fault)  # type: ignore[misc]
        for doing, action in (
            ("write", lambda: place.write("objects/one", BODY)),
            ("list", lambda: place.sizes("objects")),
            ("delete", lambda: place.delete("objects/one")),
            ("read", lambda: place.read("objects/one")),
        ):
            with pytest.raises(PlaceFailed, match=f"s3://bucket/for-good/objects.*: could not {doing} it: ") as failed:
                action()
            assert "\n" not in str(failed.value)
            assert len(str(failed.value)) < 800
        if fault is Fault.REFUSED:
            assert len(server.requests) == 4
            assert "403" in str(failed.value)


def test_a_missing_bucket_is_an_error(server: FaultyS3) -> None:
    """A bucket that does not exist is named."""
    server.treat(lambda _number: Fault.NONE)
    place = ObjectStorage(server.url("x", bucket="none"))
    for action in (lambda: place.sizes("backups"), lambda: place.write("objects/one", b"x")):
        with pytest.raises(PlaceFailed, match=r"s3://none/x/.*NoSuchBucket"):
            action()


def test_backups_through_faults(server: FaultyS3, running: Store, tmp_path: Path) -> None:
    """All commands end well while every fourth request has a fault; the second backup moves only what is new."""
    chance = random.Random(3)
    server.treat(lambda _number: chance.choice(PASSING) if chance.random() < FAULT_SHARE else Fault.NONE)
    url = server.url("faults", timeout_s=SHORT_S)
    first = created(running, url)
    fill(running, 1, 300)
    second = created(running, url)
    new = int(str(second["end_physical_offset"])) - int(str(first["end_physical_offset"]))
    assert new <= int(str(second["new_bytes"])) <= new + 20_000
    assert run("backup", "verify", "--from", url, "--all").code == 0
    pruned = run("backup", "prune", "--from", url, "--keep", "1", "--json")
    assert pruned.rows[0]["deleted"] == [first["backup_id"]]
    assert [row["backup_id"] for row in run("backup", "list", "--from", url, "--json").rows] == [second["backup_id"]]
    restored(url, tmp_path / "again", extra=CREDENTIALS)
    compared = run_here("verify", str(tmp_path / "again"), "--against", str(running.data_dir), "--allow-running")
    assert "0 faults" in compared.output
    assert {fault for _, _, fault in server.requests} >= {Fault.NONE, *PASSING[:2]}


def test_a_failure_for_good_at_every_request(server: FaultyS3, running: Store, tmp_path: Path) -> None:
    """Create, prune and restore say what failed, whichever request fails first; the complete backup restores."""
    url = server.url("at-every", retry_s=0)
    server.treat(lambda _number: Fault.NONE)
    first = created(running, url)
    fill(running, 2, 100)
    assert fails_at_every_request(server, running, "backup", "create", "--to", url) > 5
    assert run("backup", "verify", "--from", url, "--all").code == 0
    restored(url, tmp_path / "first", "--backup", str(first["backup_id"]), extra=CREDENTIALS)
    assert fails_at_every_request(server, running, "backup", "prune", "--from", url, "--keep", "1") > 3
    target = str(tmp_path / "target")
    assert fails_at_every_request(server, running, "restore", "--from", url, "--data-dir", target) > 3
    assert len(run("backup", "list", "--from", url, "--json").rows) == 1
    compared = run_here("verify", target, "--against", str(running.data_dir), "--allow-running")
    assert "0 faults" in compared.output


def fails_at_every_request(server: FaultyS3, running: Store, *command: str) -> int:
    """Run a command with a failure for good from the first, the third, … request on, until it ends well.

    A backup whose manifest was written without an answer is complete, and a request more for the next run.
    """
    for number in range(0, 60, 2):
        fault = (Fault.ERROR_500, Fault.LOST)[number // 2 % 2]
        server.treat(lambda at, number=number, fault=fault: fault if at >= number else Fault.NONE)  # type: ignore[misc]
        result = running.run(*command)
        server.treat(lambda _number: Fault.NONE)
        if result.code == 0:
            return number
        assert result.code == 1, result
        assert "BACKUP_FAILED" in result.errors
        assert "could not " in result.errors
    raise AssertionError(f"{command} never ended well")
