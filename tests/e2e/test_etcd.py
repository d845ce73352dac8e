# SPDX-License-Identifier: Apache-2.0
"""EtcdCoordinator with a real etcd: the contract of coordinators, and faults of etcd, its disk and the network."""

import asyncio
import contextlib
import itertools
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View
from services.commitlog.rpc.coordinate import etcd_pb2 as pb
from services.commitlog.rpc.coordinate.endpoints import Endpoints
from services.commitlog.rpc.coordinate.etcd import EtcdCoordinator
from services.commitlog.rpc.coordinate.settings import EtcdConfig
from tests.support.certificates import self_signed
from tests.support.coordinator_contract import CoordinatorContract, record_of, seen_when
from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.patience import LIMIT_S, freeze
from tests.support.surroundings import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(ETCD is None, reason=NO_ETCD)]

PREFIXES = (f"/reput/{number}" for number in itertools.count())
PATIENT_MS = int(LIMIT_S * 1000)
"""A time-out of calls that must succeed, on the busiest machine."""


class EtcdStage:
    """A prefix of a shared etcd."""

    lease_s = 2.0

    def __init__(self, config: EtcdConfig, *, lease_s: float = lease_s) -> None:
        self._config, self.lease_s = config, lease_s
        self.prefix = next(PREFIXES)
        self._doors: list[EtcdCoordinator] = []

    def door(self, identity: str, *, timeout_ms: int | None = None) -> EtcdCoordinator:
        """Return the door of a further process."""
        config = self._config
        if timeout_ms is not None:
            config = EtcdConfig(targets=config.targets, timeout_ms=timeout_ms)
        lease_duration_ms = int(self.lease_s * 1000) - 1  # rounded up
        made = EtcdCoordinator(config, prefix=self.prefix, identity=identity, lease_duration_ms=lease_duration_ms)
        self._doors.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        """Wait this long."""
        await asyncio.sleep(seconds)

    def now_s(self) -> float:
        """The time as etcd counts it."""
        return time.monotonic()

    async def close(self) -> None:
        """Close the doors."""
        for door in self._doors:
            await door.close()


@contextlib.asynccontextmanager
async def staged(config: EtcdConfig, *, lease_s: float = EtcdStage.lease_s) -> AsyncIterator[EtcdStage]:
    """A stage that is closed at the end."""
    stage = EtcdStage(config, lease_s=lease_s)
    try:
        yield stage
    finally:
        await stage.close()


@contextlib.contextmanager
def running(server: EtcdServer) -> Iterator[EtcdServer]:
    """A server that is started, and ended in any case."""
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd for all tests that leave it unchanged."""
    with running(EtcdServer(tmp_path_factory.mktemp("etcd"))) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    """An etcd that a test may break."""
    with running(EtcdServer(tmp_path / "etcd")) as made:
        yield made


@pytest.fixture
async def stage(shared: EtcdServer) -> AsyncIterator[EtcdStage]:
    """A stage without any record."""
    async with staged(EtcdConfig(targets=shared.target, timeout_ms=PATIENT_MS)) as made:
        yield made


class TestContract(CoordinatorContract):
    """All promises of coordinators."""


async def read_patiently(door: EtcdCoordinator) -> View:
    """Read until there is an answer."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(CoordinatorUnavailable):
                return await door.read()
            await asyncio.sleep(0.05)


async def test_etcd_is_killed_and_comes_back(server: EtcdServer) -> None:
    """While etcd is down, all calls and watches fail.

    After its restart the record and the holder are unchanged, and the same doors work.
    """
    async with staged(EtcdConfig(targets=server.target), lease_s=30) as stage:
        door = stage.door("a")
        await read_patiently(door)
        held = await door.elect(await door.read(), record_of(1))
        watching = asyncio.create_task(seen_when(stage.door("b"), lambda view: not view.holder))
        server.kill()
        for call in (
            door.read(),
            door.renew(),
            door.elect(held, record_of(2)),
            door.change(held, record_of(2)),
            watching,
        ):
            with pytest.raises(CoordinatorUnavailable):
                await call
        server.start()
        assert await read_patiently(door) == held
        await door.renew()
        changed = await door.change(held, record_of(2))
        assert await door.read() == changed


async def test_etcd_stands_still(server: EtcdServer) -> None:
    """While etcd is frozen, each call and a watch fail after their time-out, and they work again afterwards."""
    async with staged(EtcdConfig(targets=server.target, timeout_ms=500), lease_s=30) as stage:
        door, patient = stage.door("a"), stage.door("a", timeout_ms=PATIENT_MS)
        held = await patient.elect(await patient.read(), record_of(1))
        await read_patiently(door)
        started = asyncio.Event()
        watching = asyncio.create_task(seen_when(door, lambda view: not view.holder, on_first=started.set))
        await started.wait()
        await freeze(server.pid)
        for call in (door.read(), door.renew(), door.release(held, record_of(1, None))):
            with pytest.raises(CoordinatorUnavailable):
                await asyncio.wait_for(call, LIMIT_S)
        with pytest.raises(CoordinatorUnavailable):
            await asyncio.wait_for(watching, LIMIT_S)
        server.send(signal.SIGCONT)
        await read_patiently(door)
        view = await patient.read()  # the release may have been carried out, or not
        assert view in (held, View(record_of(1, None), "", view.record_version))


async def test_an_answer_that_was_lost(stage: EtcdStage) -> None:
    """A process that lost the answer of its election reads that it holds the lease, and can renew and change."""
    silent, door = stage.door("a"), stage.door("a")
    view = await silent.elect(await silent.read(), record_of(1))
    with pytest.raises(Lost):
        await door.renew()
    assert await door.read() == view
    await door.renew()
    await door.release(await door.change(view, record_of(2)), record_of(2, None))
    assert (await silent.read()).holder == ""


async def test_a_lease_is_revoked_early(shared: EtcdServer, stage: EtcdStage) -> None:
    """When a lease is revoked early, its key is removed, watchers are notified, and the holder has lost."""
    door = stage.door("a")
    held = await door.elect(await door.read(), record_of(1))
    found = shared.post("kv/range", key=f"{stage.prefix}/leader".encode())
    started = asyncio.Event()
    watching = asyncio.create_task(seen_when(stage.door("b"), lambda view: not view.holder, on_first=started.set))
    await started.wait()
    shared.post("lease/revoke", ID=found["kvs"][0]["lease"])
    assert (await watching).record == record_of(1)
    with pytest.raises(Lost):
        await door.change(held, record_of(2))
    with pytest.raises(Lost):
        await door.renew()


async def test_who_loses_leaves_no_lease(shared: EtcdServer, stage: EtcdStage) -> None:
    """The lease of a failed election is revoked, and so is the lease of a holder that has released it."""
    before = shared.post("lease/leases").get("leases", [])
    a, b = stage.door("a"), stage.door("b")
    seen = await a.read()
    held = await a.elect(seen, record_of(1))
    with pytest.raises(Lost):
        await b.elect(seen, record_of(1, None))
    await a.release(held, record_of(1, None))
    left = [lease for lease in shared.post("lease/leases").get("leases", []) if lease not in before]
    assert left == []


@pytest.mark.parametrize(
    "value",
    [b"{", b'{"history_id":"\xff"}', b'{"later":' + b"[" * 20_000, b'{"version":2}', b" " * 70_000],
    ids=range(5),
)
async def test_a_damaged_record(shared: EtcdServer, stage: EtcdStage, value: bytes) -> None:
    """Reads and watches report a damaged record as an outage, until a person has repaired it."""
    door = stage.door("a")
    view = await door.elect(await door.read(), record_of(1))
    shared.post("kv/put", key=f"{stage.prefix}/record".encode(), value=value)
    with pytest.raises(CoordinatorUnavailable, match="the record"):
        await door.read()
    with pytest.raises(CoordinatorUnavailable, match="the record"):
        await seen_when(door, lambda _: True)
    with pytest.raises(Lost):
        await door.change(view, record_of(2))
    shared.post("kv/put", key=f"{stage.prefix}/record".encode(), value=record_of(1).encode())
    assert (await door.read()).record == record_of(1)


async def test_what_a_watch_needs_is_compacted(shared: EtcdServer, stage: EtcdStage) -> None:
    """A watch fails if etcd has compacted the changes that it has not read.

    The next watch begins with the current view.
    """
    door = stage.door("a")
    view = await door.elect(await door.read(), record_of(1))
    views = door.watch()
    assert await anext(views) == view
    for epoch in (2, 3):
        view = await door.change(view, record_of(epoch))
    revision = shared.post("kv/range", key=b"x")["header"]["revision"]
    shared.post("kv/compaction", revision=revision)
    with pytest.raises(CoordinatorUnavailable, match=f"revision {revision} is the first one that is kept"):
        await anext(views)
    assert await seen_when(door, lambda _: True) == view


async def test_a_quiet_watch_shows_that_it_lives(shared: EtcdServer) -> None:
    """A watch without events stays alive, because etcd answers its requests for progress."""
    endpoints = Endpoints(EtcdConfig(targets=shared.target, timeout_ms=1_000))
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(CoordinatorUnavailable):  # where the machine is too busy, once more
                async with contextlib.aclosing(endpoints.watch(pb.WatchCreateRequest(key=b"quiet"))) as responses:
                    answers = [await anext(responses) for _ in range(4)]
                    break
    assert not any(answer.events for answer in answers)
    await endpoints.close()


async def test_keys_of_others(shared: EtcdServer, stage: EtcdStage) -> None:
    """Records of logs with similar names, and other keys below the prefix, are not read as this record."""
    for key in ("/recorder", "/later", "-2/record", "0/record"):
        shared.post("kv/put", key=f"{stage.prefix}{key}".encode(), value=b"x")
    assert await stage.door("a").read() == View(None, "")


async def test_one_of_two_members_is_dead(server: EtcdServer) -> None:
    """Calls and watches use the living member, in any order of the targets."""
    dead = f"127.0.0.1:{free_port()}"
    for targets in (f"{dead},{server.target}", f"{server.target}, {dead}"):
        async with staged(EtcdConfig(targets=targets, timeout_ms=PATIENT_MS)) as stage:
            a, b = stage.door("a"), stage.door("b")
            await seen_when(b, lambda view: view.record is None)
            seen = View(None, "")
            view = await a.elect(seen, record_of(1))  # the first call of its door
            assert (await seen_when(b, lambda view: view.holder == "a")) == view


def test_all_members_are_dead() -> None:
    """The error of each call names the members that did not answer."""

    async def call() -> None:
        dead = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        async with staged(EtcdConfig(targets=",".join(dead))) as stage:
            with pytest.raises(CoordinatorUnavailable, match=f"({'|'.join(dead)}): UNAVAILABLE"):
                await stage.door("a").read()

    asyncio.run(call())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd with users: `store` may read and write below its prefix alone. Tokens last a second."""
    with running(EtcdServer(tmp_path_factory.mktemp("guarded"), "--auth-token-ttl", "1")) as server:
        for name, password in (("root", "r"), ("store", "s3cret")):
            server.post("auth/user/add", name=name, password=password)
            server.post("auth/role/add", name=name)
            server.post("auth/user/grant", user=name, role=name)
        everywhere = {"permType": "READWRITE", "key": "L3JlcHV0Lw==", "range_end": "L3JlcHV0MA=="}  # /reput/ to /reput0
        server.post("auth/role/grant", name="store", perm=everywhere)
        server.post("auth/enable")
        yield server


async def test_a_user_with_a_password(guarded: EtcdServer, tmp_path: Path) -> None:
    """All calls carry a token, and a token that has expired is replaced without an error."""
    password_file = tmp_path / "password"
    password_file.write_text("s3cret\n")
    config = EtcdConfig(targets=guarded.target, user="store", password_file=password_file, timeout_ms=PATIENT_MS)
    async with staged(config, lease_s=30) as stage:
        door = stage.door("a")
        view = await door.elect(await door.read(), record_of(1))
        await asyncio.sleep(2.5)  # its token is over
        await door.renew()
        view = await door.change(view, record_of(2))
        assert (await seen_when(door, lambda view: view.record == record_of(2))) == view
        await door.release(view, record_of(2, None))


@pytest.mark.parametrize(("user", "password"), [("store", "wrong"), ("nobody", "s3cret"), ("", "")])
async def test_who_is_not_known(guarded: EtcdServer, tmp_path: Path, user: str, password: str) -> None:
    """Calls of an unknown user fail with the reason, and a corrected password takes effect without a restart."""
    password_file = tmp_path / "password"
    password_file.write_text(password)
    config = EtcdConfig(
        targets=guarded.target, user=user, password_file=password_file if user else None, timeout_ms=PATIENT_MS
    )
    async with staged(config) as stage:
        door = stage.door("a")
        with pytest.raises(CoordinatorUnavailable, match="INVALID_ARGUMENT"):
            await door.read()
        with pytest.raises(CoordinatorUnavailable, match="INVALID_ARGUMENT"):
            await door.elect(View(None, ""), record_of(1))
        if user == "store":
            password_file.write_text("s3cret")
            assert await door.read() == View(None, "")


async def test_a_password_that_nobody_asks_for(shared: EtcdServer, tmp_path: Path) -> None:
    """With an etcd without users, calls carry no token and succeed."""
    (tmp_path / "password").write_text("x")
    config = EtcdConfig(targets=shared.target, user="store", password_file=tmp_path / "password", timeout_ms=PATIENT_MS)
    async with staged(config) as stage:
        assert await stage.door("a").read() == View(None, "")


@pytest.fixture
def pems(tmp_path: Path) -> dict[str, Path]:
    """Keys and certificates of server and client, each signed by itself."""
    return self_signed(tmp_path, "server", "client")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
async def test_tls(tmp_path: Path, pems: dict[str, Path]) -> None:
    """Certificates are checked in both directions, and a client with wrong certificates gets no answer."""
    flags = (
        *("--cert-file", str(pems["server.pem"]), "--key-file", str(pems["server.key"])),
        *("--client-cert-auth", "--trusted-ca-file", str(pems["client.pem"])),
    )
    with running(EtcdServer(tmp_path / "etcd", *flags, scheme="https")) as server:
        right = EtcdConfig(
            targets=server.target,
            tls_ca_file=pems["server.pem"],
            tls_certificate_file=pems["client.pem"],
            tls_key_file=pems["client.key"],
            timeout_ms=PATIENT_MS,
        )
        async with staged(right) as stage:
            door = stage.door("a")
            view = await door.elect(await door.read(), record_of(1))
            assert await seen_when(door, lambda _: True) == view
        wrong = (
            EtcdConfig(targets=server.target),
            EtcdConfig(targets=server.target, tls_ca_file=pems["server.pem"]),
            EtcdConfig(targets=server.target, tls_ca_file=pems["client.pem"]),
        )
        for config in wrong:
            async with staged(config) as stage:
                with pytest.raises(CoordinatorUnavailable):
                    await stage.door("a").read()
