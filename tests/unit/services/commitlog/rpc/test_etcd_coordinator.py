# SPDX-License-Identifier: Apache-2.0
"""EtcdCoordinator: its requests, and its results for answers that fail, come late or never arrive."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from libs.runtime.errors import ConfigError
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View
from services.commitlog.rpc.coordinate import etcd_pb2 as pb
from services.commitlog.rpc.coordinate.etcd import EtcdCoordinator
from services.commitlog.rpc.coordinate.record import Refused
from services.commitlog.rpc.coordinate.settings import EtcdConfig

RECORD = LeadershipRecord(history_id="h", epoch=1, in_sync=(Member("a", "1" * 32),))
SEEN = View(RECORD, "a", 5, 7)
HEAD = pb.ResponseHeader(revision=9)
DONE = pb.TxnResponse(header=HEAD, succeeded=True)
NOT_DONE = pb.TxnResponse(header=HEAD)
GRANTED = pb.LeaseGrantResponse(ID=77)


def failure(code: grpc.StatusCode, details: str = "") -> grpc.aio.AioRpcError:
    """A call that fails."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


UNREACHABLE = failure(grpc.StatusCode.UNAVAILABLE)
LATE = failure(grpc.StatusCode.DEADLINE_EXCEEDED)
BAD_TOKEN = failure(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")


class Etcd:
    """A member of etcd that gives the answers of a test, method by method; the last answer is repeated."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {name: answer if isinstance(answer, list) else [answer] for name, answer in answers.items()}
        self.calls: list[tuple[str, Any, dict[str, str]]] = []
        self.is_closed = False

    def unary_unary(self, path: str, **_: object) -> Callable[..., Any]:
        """Be the channel, too."""

        async def call(request: Any, *, timeout: float, metadata: tuple[tuple[str, str], ...]) -> Any:  # noqa: ASYNC109
            assert 0 < timeout <= 1
            name = path.rpartition("/")[2]
            self.calls.append((name, request, dict(metadata)))
            answers = self.answers.get(name, [UNREACHABLE])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            await asyncio.sleep(0)
            if isinstance(answer, asyncio.Event):
                await answer.wait()
                raise LATE
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call

    def stream_stream(self, _path: str, **_: object) -> Callable[..., Any]:
        """Be a watch, too."""
        return lambda requests, *, metadata: self

    async def read(self) -> Any:
        """Give the next answer of the watch."""
        answer = self.answers["Watch"].pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def cancel(self) -> None:
        """End the watch."""

    async def close(self) -> None:
        """Close the channel."""
        self.is_closed = True

    def names(self) -> list[str]:
        """The methods that were called."""
        return [name for name, _, _ in self.calls]


def door(*members: Etcd, **settings: Any) -> EtcdCoordinator:
    """A door to these members."""
    channels: Any = dict(zip("xyz", members, strict=False))
    config = EtcdConfig(targets=",".join(channels), **settings)
    return EtcdCoordinator(
        config, prefix="/p/", identity="a", lease_duration_ms=4_001, connect=lambda _, target: channels[target]
    )


def test_settings(tmp_path: Path) -> None:
    """Settings that need each other are refused alone; addresses are split."""
    assert EtcdConfig(targets=" a:1, b:2,").members == ("a:1", "b:2")
    file = tmp_path / "file"
    for settings in ({"tls_key_file": file}, {"user": "u"}, {"password_file": file}):
        with pytest.raises(ValueError, match="need each other"):
            EtcdConfig(targets="a:1", **settings)
    with pytest.raises(ValueError, match="needs tls_ca_file"):
        EtcdConfig(targets="a:1", tls_key_file=file, tls_certificate_file=file)
    for settings in ({"tls_ca_file": file}, {"user": "u", "password_file": file}):
        with pytest.raises(ConfigError, match="etcd_"):
            EtcdCoordinator(EtcdConfig(targets="a:1", **settings), prefix="p", identity="a", lease_duration_ms=1)


async def test_what_an_election_sends() -> None:
    """An election compares both keys, a missing key by revision 0, and puts both at once.

    The leader's key is on a lease of whole seconds.
    """
    etcd = Etcd(LeaseGrant=GRANTED, Txn=DONE)
    assert await door(etcd).elect(View(None, ""), RECORD) == View(RECORD, "a", 9, 9)
    (_, grant, metadata), (_, txn, _) = etcd.calls
    assert grant == pb.LeaseGrantRequest(TTL=5)
    assert metadata == {"hasleader": "true"}
    assert txn == pb.TxnRequest(
        compare=[
            pb.Compare(target=pb.Compare.MOD, key=b"/p/record", mod_revision=0),
            pb.Compare(target=pb.Compare.MOD, key=b"/p/leader", mod_revision=0),
        ],
        success=[
            pb.RequestOp(request_put=pb.PutRequest(key=b"/p/record", value=RECORD.encode())),
            pb.RequestOp(request_put=pb.PutRequest(key=b"/p/leader", value=b"a", lease=77)),
        ],
    )
    assert txn.compare[0].WhichOneof("target_union") == "mod_revision"


async def test_what_changes_send() -> None:
    """Both versions and the holder are compared; a release deletes the key in the same transaction."""
    etcd = Etcd(Txn=DONE)
    a = door(etcd)
    assert await a.change(SEEN, RECORD) == View(RECORD, "a", 9, 7)
    await a.release(SEEN, RECORD)
    (_, change, _), (_, release, _) = etcd.calls
    compares = [
        pb.Compare(target=pb.Compare.MOD, key=b"/p/record", mod_revision=5),
        pb.Compare(target=pb.Compare.MOD, key=b"/p/leader", mod_revision=7),
        pb.Compare(target=pb.Compare.VALUE, key=b"/p/leader", value=b"a"),
    ]
    assert list(change.compare) == list(release.compare) == compares
    assert list(change.success) == [release.success[0]]
    assert release.success[1].request_delete_range.key == b"/p/leader"


@pytest.mark.parametrize(
    ("answer", "error", "is_revoked"),
    [
        (NOT_DONE, Lost, True),
        (failure(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found"), Refused, True),
        (failure(grpc.StatusCode.PERMISSION_DENIED), Refused, True),
        (UNREACHABLE, CoordinatorUnavailable, False),
        (LATE, CoordinatorUnavailable, False),
        (failure(grpc.StatusCode.UNKNOWN), CoordinatorUnavailable, False),
    ],
)
async def test_a_transaction_is_sent_once(answer: Any, error: type[Exception], is_revoked: bool) -> None:
    """A transaction with an unknown outcome may hold the lease, so it is neither repeated nor undone."""
    first, second = Etcd(LeaseGrant=GRANTED, Txn=answer), Etcd(LeaseRevoke=pb.LeaseRevokeResponse())
    first.answers["LeaseRevoke"] = [pb.LeaseRevokeResponse()]
    with pytest.raises(error) as caught:
        await door(first, second).elect(SEEN, RECORD)
    assert caught.type is error
    assert first.names() == ["LeaseGrant", "Txn", *["LeaseRevoke"] * is_revoked]
    assert second.calls == []


async def test_a_lease_that_can_not_be_revoked() -> None:
    """If a lease cannot be revoked, the caller gets Lost alone, and the lease expires."""
    with pytest.raises(Lost):
        await door(Etcd(LeaseGrant=GRANTED, Txn=NOT_DONE)).elect(SEEN, RECORD)


@pytest.mark.parametrize("error", [UNREACHABLE, LATE])
async def test_a_member_that_fails_is_left(error: Exception) -> None:
    """The call after a failure uses the next member; an unreachable member is replaced within the call.

    Two failures of the same member advance once.
    """
    empty = pb.RangeResponse(header=HEAD)
    first, second = Etcd(Range=error), Etcd(Range=empty)
    a = door(first, second)
    outcomes = await asyncio.gather(a.read(), a.read(), return_exceptions=True)
    assert [isinstance(outcome, View) for outcome in outcomes] == [error is UNREACHABLE] * 2
    assert await a.read() == View(None, "")
    assert first.names() == ["Range"] * 2
    await a.close()
    assert first.is_closed
    assert second.is_closed


async def test_a_failure_that_is_old_news() -> None:
    """A call that fails late does not leave a member that has answered since."""
    gives_up = asyncio.Event()
    first, second = Etcd(Range=[gives_up, UNREACHABLE]), Etcd(Range=UNREACHABLE)
    a = door(first, second, Etcd(Range=pb.RangeResponse(header=HEAD)))
    late = asyncio.create_task(a.read())
    await asyncio.sleep(0)
    await a.read()
    gives_up.set()
    with pytest.raises(CoordinatorUnavailable, match="DEADLINE_EXCEEDED"):
        await late
    await a.read()
    assert len(second.calls) == 1


async def test_a_lease_that_is_over_before_its_key() -> None:
    """The lease counts, although its key is removed a moment later."""
    own = pb.KeyValue(key=b"/p/leader", value=b"a", mod_revision=9, lease=77)
    etcd = Etcd(Range=pb.RangeResponse(header=HEAD, kvs=[own]), LeaseKeepAlive=pb.LeaseKeepAliveResponse())
    a = door(etcd)
    await a.read()
    with pytest.raises(Lost):
        await a.renew()
    assert etcd.calls[1][1] == pb.LeaseKeepAliveRequest(ID=77)


async def test_a_token_that_is_over_for_a_watch(tmp_path: Path) -> None:
    """A watch with an expired token is canceled, and the next call gets a new token."""
    (tmp_path / "password").write_text("s3cret")
    etcd = Etcd(
        Authenticate=[pb.AuthenticateResponse(token=token) for token in ("t1", "t2")],
        Range=pb.RangeResponse(header=HEAD),
        Watch=[pb.WatchResponse(canceled=True, cancel_reason="etcdserver: permission denied")],
    )
    a = door(etcd, user="u", password_file=tmp_path / "password")
    views = a.watch()
    await anext(views)
    with pytest.raises(CoordinatorUnavailable):
        await anext(views)
    await a.read()
    assert [metadata["token"] for name, _, metadata in etcd.calls if name == "Range"] == ["t1", "t2"]


async def test_a_token_that_is_over(tmp_path: Path) -> None:
    """An expired token is renewed once in a call, and the call is sent again, because it was not carried out."""
    (tmp_path / "password").write_text("s3cret\n")
    tokens = [pb.AuthenticateResponse(token=token) for token in ("t1", "t2", "t3")]
    etcd = Etcd(Authenticate=tokens, Txn=[DONE, BAD_TOKEN, DONE, BAD_TOKEN])
    a = door(etcd, user="u", password_file=tmp_path / "password")
    await a.change(SEEN, RECORD)
    await a.change(SEEN, RECORD)
    with pytest.raises(Refused, match="UNAUTHENTICATED"):
        await a.change(SEEN, RECORD)
    assert etcd.calls[0][1] == pb.AuthenticateRequest(name="u", password="s3cret")
    shown = [metadata.get("token") for name, _, metadata in etcd.calls if name == "Txn"]
    assert shown == ["t1", "t1", "t2", "t2", "t3"]


async def test_a_password_that_is_not_there_any_more(tmp_path: Path) -> None:
    """A missing password file is an outage, and does not end the process."""
    (tmp_path / "password").write_text("x")
    a = door(Etcd(), user="u", password_file=tmp_path / "password")
    (tmp_path / "password").unlink()
    with pytest.raises(CoordinatorUnavailable, match="etcd_password_file"):
        await a.read()


async def test_a_record_that_nobody_would_read() -> None:
    """A record that no member could read is refused before a request is sent."""
    etcd = Etcd()
    large = LeadershipRecord(history_id="h" * (64 << 10), epoch=1, in_sync=())
    for call in (door(etcd).elect, door(etcd).change, door(etcd).release):
        with pytest.raises(CoordinatorUnavailable, match="the limit is 65536"):
            await call(SEEN, large)
    assert etcd.calls == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (pb.WatchResponse(canceled=True, cancel_reason="etcdserver: permission denied"), "permission denied"),
        (pb.WatchResponse(canceled=True, compact_revision=8), "revision 8 is the first"),
        (grpc.aio.EOF, "the watch has ended"),
        (UNREACHABLE, "UNAVAILABLE"),
        (asyncio.CancelledError(), "the connection is closed"),
    ],
)
async def test_a_watch_that_breaks(answer: Any, text: str) -> None:
    """A broken watch raises its reason, and the watcher watches again; answers without news give no views."""
    leader = pb.KeyValue(key=b"/p/leader", value=b"b", mod_revision=9)
    etcd = Etcd(
        Range=[pb.RangeResponse(header=pb.ResponseHeader(revision=8)), pb.RangeResponse(header=HEAD, kvs=[leader])],
        Watch=[
            pb.WatchResponse(header=HEAD),
            pb.WatchResponse(header=HEAD, events=[pb.Event(kv=pb.KeyValue(mod_revision=9))]),
            pb.WatchResponse(header=HEAD, events=[pb.Event(kv=pb.KeyValue(mod_revision=9))]),
            answer,
        ],
    )
    views = door(etcd).watch()
    assert [await anext(views), await anext(views)] == [View(None, ""), View(None, "b", 0, 9)]
    with pytest.raises(CoordinatorUnavailable, match=text):
        await anext(views)


async def test_who_is_cancelled() -> None:
    """A cancelled task ends as cancelled, and does not raise CoordinatorUnavailable."""
    etcd = Etcd()

    async def read() -> None:
        await asyncio.sleep(3600)

    etcd.answers["Watch"] = [None]
    etcd.answers["Range"] = [pb.RangeResponse(header=HEAD)]
    etcd.read = read  # type: ignore[method-assign]
    views = door(etcd, timeout_ms=1_000).watch()
    await anext(views)
    task = asyncio.ensure_future(anext(views))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_watch_that_is_silent() -> None:
    """A watch that is silent too long is given up, and its member is left."""
    first, second = Etcd(Range=pb.RangeResponse(header=HEAD)), Etcd(Range=pb.RangeResponse(header=HEAD))

    async def read() -> None:
        await asyncio.sleep(3600)

    first.read = read  # type: ignore[method-assign]
    a = door(first, second, timeout_ms=1_000)
    views = a.watch()
    await anext(views)
    with pytest.raises(CoordinatorUnavailable, match="the watch is silent"):
        await anext(views)
    await a.read()
    assert second.names() == ["Range"]


async def test_renewals_of_what_was_taken() -> None:
    """A renewal needs both a live lease and the key on it. After a loss every renewal raises Lost."""
    other = pb.KeyValue(key=b"/p/leader", value=b"b", mod_revision=10)
    own = pb.KeyValue(key=b"/p/leader", value=b"a", mod_revision=9)
    alive = pb.LeaseKeepAliveResponse(TTL=5)
    etcd = Etcd(
        LeaseGrant=GRANTED, Txn=DONE, LeaseKeepAlive=alive,
        Range=[pb.RangeResponse(header=HEAD, kvs=[own]), pb.RangeResponse(header=HEAD, kvs=[other])],
        LeaseRevoke=pb.LeaseRevokeResponse(),
    )  # fmt: skip
    a = door(etcd)
    await a.elect(SEEN, RECORD)
    await a.renew()
    for _ in range(2):
        with pytest.raises(Lost):
            await a.renew()
    assert etcd.names()[2:] == ["LeaseKeepAlive", "Range"] * 2 + ["LeaseRevoke"]
    assert etcd.calls[-1][1] == pb.LeaseRevokeRequest(ID=77)
