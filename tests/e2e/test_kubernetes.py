# SPDX-License-Identifier: Apache-2.0
"""KubernetesCoordinator: the contract of coordinators, and faults of the API server and the network."""

import asyncio
import contextlib
import itertools
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from libs.machine.clock import Clock
from libs.machine.testing.manual_clock import ManualClock
from libs.runtime.errors import ConfigError
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View
from services.commitlog.rpc.coordinate.doors import open_door
from services.commitlog.rpc.coordinate.kubernetes import KubernetesCoordinator
from services.commitlog.rpc.coordinate.role_label import RoleLabel
from services.commitlog.rpc.coordinate.settings import EtcdConfig, KubernetesConfig
from tests.support.coordinator_contract import B, CoordinatorContract, record_of, seen_when
from tests.support.kube_api_server import MISSING, WHY, KubeApiServer
from tests.support.lease_server import Fault, LeaseServer, Refusal
from tests.support.patience import LIMIT_S, eventually, freeze

pytestmark = pytest.mark.e2e

NAMES = (f"log-{number}" for number in itertools.count())
PATIENT_MS = int(LIMIT_S * 1000)
"""A time-out of calls that must succeed, on the busiest machine."""


class LeaseStage:
    """A Lease at an API server."""

    lease_s = 2.0

    def __init__(self, config_file: Path) -> None:
        self.config_file = config_file
        self.lease = next(NAMES)
        self._doors: list[KubernetesCoordinator] = []

    def door(
        self, identity: str, *, timeout_ms: int = PATIENT_MS, lease_s: float = lease_s, clock: Clock | None = None
    ) -> KubernetesCoordinator:
        """Return the door of a further process."""
        config = KubernetesConfig(lease=self.lease, config_file=self.config_file, timeout_ms=timeout_ms)
        lease_duration_ms = int(lease_s * 1000) - 1  # rounded up
        made = KubernetesCoordinator(config, identity=identity, lease_duration_ms=lease_duration_ms, clock=clock)
        self._doors.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        """Wait this long."""
        await asyncio.sleep(seconds)

    def now_s(self) -> float:
        """The time as the doors count it."""
        return time.monotonic()

    async def close(self) -> None:
        """Close the doors."""
        for door in self._doors:
            await door.close()


@pytest.fixture
async def server() -> AsyncIterator[LeaseServer]:
    """An API server that a test may break."""
    made = LeaseServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """Kubernetes' own API server."""
    if MISSING:
        pytest.skip(WHY)
    made = KubeApiServer(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.start()
        yield made
    finally:
        made.kill_all()


@contextlib.asynccontextmanager
async def staged(config_file: Path) -> AsyncIterator[LeaseStage]:
    """A stage that is closed at the end."""
    made = LeaseStage(config_file)
    try:
        yield made
    finally:
        await made.close()


class TestContract(CoordinatorContract):
    """All promises of coordinators."""

    @pytest.fixture
    async def stage(self, server: LeaseServer, tmp_path: Path) -> AsyncIterator[LeaseStage]:
        """A stage without any record."""
        async with staged(server.config_file(tmp_path)) as made:
            yield made


class TestContractOfKubernetes(CoordinatorContract):
    """All promises of coordinators, with kube-apiserver itself."""

    @pytest.fixture
    async def stage(self, real: KubeApiServer, tmp_path: Path) -> AsyncIterator[LeaseStage]:
        """A stage without any record."""
        async with staged(real.config_file(tmp_path)) as made:
            yield made


@pytest.fixture
async def stage(server: LeaseServer, tmp_path: Path) -> AsyncIterator[LeaseStage]:
    """A stage without any record, at the server that a test may break."""
    async with staged(server.config_file(tmp_path)) as made:
        yield made


async def read_patiently(door: KubernetesCoordinator) -> View:
    """Read until there is an answer."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(CoordinatorUnavailable):
                return await door.read()
            await asyncio.sleep(0.05)


async def test_what_is_there_for_people(server: LeaseServer, stage: LeaseStage) -> None:
    """kubectl shows the holder, since when, for how long, and the epoch. Annotations of others in the Lease stay."""
    door = stage.door("a")
    view = await door.elect(await door.read(), record_of(1))
    await server.edit(note="kept")
    await door.release(await door.change(view, record_of(2)), record_of(3))
    lease = server.lease
    assert lease["spec"].items() >= {"leaseDurationSeconds": 2, "leaseTransitions": 3}.items()
    assert "holderIdentity" not in lease["spec"]
    assert lease["metadata"]["annotations"]["reput.dev/record"] == record_of(3).encode().decode()
    assert sorted(lease["metadata"]["annotations"]) == [
        "reput.dev/note", "reput.dev/record", "reput.dev/record-version"
    ]  # fmt: skip


async def test_kubernetes_is_killed_and_comes_back(real: KubeApiServer, tmp_path: Path) -> None:
    """While Kubernetes is down, calls and watches fail. After its restart the record is there, and the doors work."""
    async with staged(real.config_file(tmp_path)) as stage:
        door = stage.door("a", timeout_ms=2_000, lease_s=600)
        held = await door.elect(await read_patiently(door), record_of(1))
        started = asyncio.Event()
        watching = asyncio.create_task(
            seen_when(stage.door("b", timeout_ms=2_000), lambda view: not view.holder, on_first=started.set)
        )
        await started.wait()
        real.kill()
        for call in (door.read(), door.renew(), door.elect(held, record_of(2)), door.change(held, record_of(2))):
            with pytest.raises(CoordinatorUnavailable):
                await call
        with pytest.raises(CoordinatorUnavailable):
            await watching
        await asyncio.to_thread(real.start_alone)
        assert await read_patiently(door) == held
        await door.renew()
        changed = await door.change(held, record_of(2))
        assert await door.read() == changed


async def test_kubernetes_stands_still(real: KubeApiServer, tmp_path: Path) -> None:
    """While the API server is frozen, calls and a watch fail after their time-out, and they work again afterwards."""
    async with staged(real.config_file(tmp_path)) as stage:
        door, patient = stage.door("a", timeout_ms=500, lease_s=600), stage.door("a", lease_s=600)
        held = await patient.elect(await patient.read(), record_of(1))
        started = asyncio.Event()
        await read_patiently(door)
        watching = asyncio.create_task(seen_when(door, lambda view: not view.holder, on_first=started.set))
        await started.wait()
        await freeze(real.pid)
        try:
            for call in (door.read(), door.elect(held, record_of(2)), watching):
                with pytest.raises(CoordinatorUnavailable):
                    await asyncio.wait_for(call, LIMIT_S)
        finally:
            real.send(signal.SIGCONT)
        await read_patiently(door)
        view = await patient.read()  # the election's list may have been carried out; its change was not sent
        assert view == held


@pytest.mark.parametrize("call", ["elect", "change", "renew", "release"])
async def test_an_answer_that_was_lost(server: LeaseServer, stage: LeaseStage, call: str) -> None:
    """A lost answer is an outage, the change is made, and a second call with the same view raises Lost."""
    door = stage.door("a")
    held = await door.elect(await door.read(), record_of(1))
    server.faults.append(("put", Fault.ANSWER_LOST))
    arguments = () if call == "renew" else (held, record_of(2))
    with pytest.raises(CoordinatorUnavailable):
        await getattr(door, call)(*arguments)
    view = await door.read()
    if call == "renew":
        assert view == held
        await door.renew()
        return
    assert view.record == record_of(2)
    assert (view.holder, view.holder_version == held.holder_version) == (
        ("", False) if call == "release" else ("a", call == "change")
    )
    with pytest.raises(Lost):
        await getattr(door, call)(*arguments)


async def test_an_election_whose_answer_was_lost(server: LeaseServer, stage: LeaseStage) -> None:
    """A process does not lead by an election whose answer was lost, and may stand for election again at once."""
    door = stage.door("a")
    server.faults.append(("post", Fault.ANSWER_LOST))
    with pytest.raises(CoordinatorUnavailable):
        await door.elect(await door.read(), record_of(1))
    with pytest.raises(Lost):
        await door.renew()
    view = await door.read()
    assert (view.holder, view.record) == ("a", record_of(1))
    await door.elect(view, record_of(2))
    await door.renew()


@pytest.mark.parametrize("fault", [Fault.DROPPED, Fault.SILENT])
async def test_a_request_that_is_lost(server: LeaseServer, stage: LeaseStage, fault: Fault) -> None:
    """A lost request changes nothing, and may be made again."""
    door = stage.door("a", timeout_ms=1_000)
    held = await stage.door("a").elect(await door.read(), record_of(1))
    for verb in ("get", "put"):
        server.faults.append((verb, fault))
        with pytest.raises(CoordinatorUnavailable):
            await door.elect(held, record_of(2))
        assert await read_patiently(door) == held


async def test_a_request_that_comes_late(server: LeaseServer, stage: LeaseStage) -> None:
    """A request that a former leader sent before the next election is refused after it."""
    a, b = stage.door("a", timeout_ms=1_000), stage.door("b")
    held = await a.elect(await read_patiently(a), record_of(1))
    server.faults.append(("put", Fault.LATE))
    with pytest.raises(CoordinatorUnavailable):
        await a.change(held, record_of(2))
    won = await b.elect(await b.read(), record_of(3, B))
    server.let_go.set()
    await asyncio.sleep(0.1)
    assert await b.read() == won
    with pytest.raises(Lost):
        await a.renew()


@pytest.mark.parametrize("code", [400, 401, 403, 422, 429, 500, 503])
async def test_what_is_refused(server: LeaseServer, stage: LeaseStage, code: int) -> None:
    """A refused request changes nothing, and the error has the API server's words."""
    door = stage.door("a")
    held = await door.elect(await door.read(), record_of(1))
    for verb in ("get", "put"):
        # after a 401 the door asks for a newer token first
        server.faults += [(verb, Refusal(code, "Because"))] * (2 if code == 401 else 1)
        with pytest.raises(CoordinatorUnavailable, match=f"{server.url}: {code} told by the test"):
            await door.change(held, record_of(2))
    assert await door.read() == held
    server.faults += [("watch", Refusal(code, "Because"))] * (2 if code == 401 else 1)
    with pytest.raises(CoordinatorUnavailable, match=f"{server.url}: {code}"):
        await seen_when(door, lambda view: not view.record)


async def test_a_token_that_is_replaced(server: LeaseServer, stage: LeaseStage) -> None:
    """The kubelet writes a new token before the old token expires, and no call or watch fails."""
    a, b = stage.door("a"), stage.door("b")
    held = await a.elect(await a.read(), record_of(1))
    watching = asyncio.create_task(seen_when(b, lambda view: view.record == record_of(2)))
    stage.config_file.with_name("token").write_text("another")
    server.token = "another"
    await a.renew()
    assert await a.change(held, record_of(2)) == await watching


async def test_a_token_that_is_gone(server: LeaseServer, stage: LeaseStage) -> None:
    """Calls without a valid token fail with the reason, until the token is back."""
    door = stage.door("a")
    server.token = "another"
    with pytest.raises(CoordinatorUnavailable, match="401 Unauthorized"):
        await door.read()
    stage.config_file.with_name("token").unlink()
    with pytest.raises(CoordinatorUnavailable, match="oken"):
        await door.read()
    stage.config_file.with_name("token").write_text("another")
    assert await door.read() == View(None, "")


async def test_others_change_the_lease_meanwhile(server: LeaseServer, stage: LeaseStage) -> None:
    """Changes of the Lease that leave record and holder alone make no call fail."""
    door = stage.door("a")
    held = await door.elect(await door.read(), record_of(1))
    for number in range(5):
        server.faults.append(("put", Refusal(409, "Conflict")))
        await server.edit(note=str(number))
        held = await door.change(held, record_of(number + 2))
        server.faults.append(("put", Refusal(409, "Conflict")))
        await door.renew()
    assert await door.read() == held


async def test_somebody_else_changes_the_record(server: LeaseServer, stage: LeaseStage) -> None:
    """A record that a person has written is read, and not overwritten."""
    door = stage.door("a")
    held = await door.elect(await door.read(), record_of(1))
    await server.edit(record=record_of(7).encode().decode())
    with pytest.raises(Lost):
        await door.change(held, record_of(2))
    await door.renew()
    assert (await door.read()).record == record_of(7)


@pytest.mark.parametrize(
    "notes",
    [
        {"record": "{"},
        {"record": " " * 70_000},
        {"record": '{"version":2}'},
        {"record_version": "x"},
        {"record_version": None},
        {"holder_version": "9" * 30},
    ],
    ids=range(6),
)
async def test_a_damaged_record(server: LeaseServer, stage: LeaseStage, notes: dict[str, str | None]) -> None:
    """Reads and watches report a damaged record as an outage, until a person has repaired it."""
    door = stage.door("a")
    view = await door.elect(await door.read(), record_of(1))
    before = server.lease["metadata"]["annotations"]
    await server.edit(**notes)
    for call in (door.read(), door.renew(), door.change(view, record_of(2)), seen_when(door, lambda _: True)):
        with pytest.raises(CoordinatorUnavailable, match=r"record|reput\.dev"):
            await call
    await server.edit(**{name.removeprefix("reput.dev/"): text for name, text in before.items()})
    assert await door.read() == view
    await door.renew()


async def test_the_lease_is_deleted(server: LeaseServer, stage: LeaseStage) -> None:
    """When the Lease is deleted, watchers are notified, the holder has lost, and a new record has a newer version."""
    a, b = stage.door("a"), stage.door("b")
    held = await a.elect(await a.read(), record_of(1))
    started = asyncio.Event()
    watching = asyncio.create_task(seen_when(b, lambda view: view.record is None, on_first=started.set))
    await started.wait()
    await server.delete()
    assert await watching == View(None, "")
    for call in (a.change(held, record_of(2)), a.renew(), a.elect(held, record_of(2))):
        with pytest.raises(Lost):
            await call
    again = await b.elect(await b.read(), record_of(2, B))
    assert again.record_version > held.record_version


async def test_the_lease_is_deleted_between(server: LeaseServer, stage: LeaseStage) -> None:
    """A change that arrives after the Lease was deleted does not create it again."""
    door = stage.door("a", timeout_ms=1_000)
    held = await door.elect(await read_patiently(door), record_of(1))
    server.faults.append(("put", Fault.LATE))
    with pytest.raises(CoordinatorUnavailable):
        await door.change(held, record_of(2))
    await server.delete()
    server.let_go.set()
    await asyncio.sleep(0.1)
    assert await door.read() == View(None, "")


async def test_a_watch_that_is_too_old(server: LeaseServer, stage: LeaseStage) -> None:
    """A watch of a version that is too old begins anew by itself."""
    a, b = stage.door("a"), stage.door("b")
    held = await a.elect(await a.read(), record_of(1))
    server.faults.append(("watch", Refusal(410, "Expired")))
    assert await seen_when(b, lambda view: view == held) == held
    views = b.watch()
    await anext(views)
    await a.change(held, record_of(2))
    await server.forget()
    assert (await anext(views)).record == record_of(2)
    await views.aclose()


async def test_a_watch_that_is_silent(server: LeaseServer, stage: LeaseStage) -> None:
    """A change that a silent watch misses is found by a read."""
    a, b = stage.door("a", lease_s=600), stage.door("b", timeout_ms=1_000)
    held = await a.elect(await a.read(), record_of(1))
    server.faults.append(("watch", Fault.SILENT))
    started = asyncio.Event()
    watching = asyncio.create_task(seen_when(b, lambda view: view.record == record_of(2), on_first=started.set))
    await started.wait()
    changed = await a.change(held, record_of(2))
    with contextlib.suppress(CoordinatorUnavailable):  # the machine was too busy for b
        assert await watching == changed


async def test_who_comes_late_waits_as_long_as_all(stage: LeaseStage) -> None:
    """For each reader a lease expires when it was not renewed for its time, counted from the reader's first read."""
    clocks = [ManualClock() for _ in range(3)]
    a, b, c = (stage.door(name, clock=clock) for name, clock in zip("abc", clocks, strict=True))
    await a.elect(await a.read(), record_of(1))
    assert (await b.read()).holder == "a"
    clocks[1].advance(1_900)
    assert (await b.read()).holder == "a"
    await a.renew()
    clocks[1].advance(1_900)
    assert (await b.read()).holder == "a"
    clocks[1].advance(1_900)
    clocks[2].advance(100_000)
    assert (await c.read()).holder == "a"
    clocks[1].advance(200)
    assert (await b.read()).holder == ""
    await a.renew()  # its own clock stands still
    assert (await b.read()).holder == "a"


async def test_a_holder_that_slept(server: LeaseServer, stage: LeaseStage) -> None:
    """A holder whose lease expired by its own clock changes nothing before a renewal, if no other was elected."""
    door = stage.door("a", clock=(clock := ManualClock()))
    held = await door.elect(await door.read(), record_of(1))
    clock.advance(2_000)
    before = len(server.requests)
    for call in (door.change, door.release):
        with pytest.raises(Lost):
            await call(held, record_of(2))
    assert len(server.requests) == before
    await door.renew()
    await door.change(held, record_of(2))


async def test_an_answer_of_something_else(tmp_path: Path, server: LeaseServer) -> None:
    """An answer of a proxy, or of another program at this port, is an outage, and never a crash."""
    for answer in (
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{",
        b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"metadata":{"resourceVersion":"a"},"items":[]}',
        b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n\r\n[",
        b"SSH-2.0-OpenSSH\r\n",
    ):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        config_file = server.config_file(tmp_path)
        await server.stop()
        other = await asyncio.start_server(serve, "127.0.0.1", server.port)
        async with staged(config_file) as stage:
            with pytest.raises(CoordinatorUnavailable):
                await stage.door("a").read()
        other.close()
        await other.wait_closed()


@pytest.mark.parametrize("text", [None, "", "x", "a: [", "clusters: []\ncontexts: []\ncurrent-context: one\n"])
def test_a_file_that_says_nothing(tmp_path: Path, text: str | None) -> None:
    """A configuration file without a server, or a pod without a service account, is refused before the start."""
    file = tmp_path / "kubeconfig"
    if text is not None:
        file.write_text(text)
    for config in (KubernetesConfig(config_file=file), KubernetesConfig()):
        with pytest.raises(ConfigError, match="coordinator kubernetes"):
            KubernetesCoordinator(config, identity="a", lease_duration_ms=2_000)


def test_an_extra_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named, with the way to install it."""
    monkeypatch.setitem(sys.modules, "services.commitlog.rpc.coordinate.kubernetes", None)
    with pytest.raises(ConfigError, match=r"install reput-server\[kubernetes\]"):
        open_door("kubernetes", EtcdConfig(targets=""), KubernetesConfig(), identity="a", lease_duration_ms=2_000)


async def test_the_role_of_a_pod(server: LeaseServer, stage: LeaseStage) -> None:
    """A pod's label follows its log's role, survives outages and missing rights, and is reset by a stop."""
    leads = True
    server.pods["log-0"] = {}
    server.faults += [("patch", Refusal(403, "Forbidden")), ("patch", Fault.ANSWER_LOST)]
    label = RoleLabel(KubernetesConfig(config_file=stage.config_file, pod="log-0"), lambda: leads)
    label.loop.start()

    def says(role: str) -> bool:
        return server.pods["log-0"].get("labels") == {"reput.dev/role": role}

    await eventually(lambda: says("leader"))
    leads = False
    await eventually(lambda: says("follower"))
    leads = True
    await eventually(lambda: says("leader"))
    await label.stop()
    assert says("follower")
