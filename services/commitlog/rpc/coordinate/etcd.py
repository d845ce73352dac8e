# SPDX-License-Identifier: Apache-2.0
"""EtcdCoordinator: the record and the leader's lease as two keys of etcd v3.

`<prefix>/record` is the record as JSON and stays. `<prefix>/leader` is the identity of the holder. It is attached to a
lease of etcd, so etcd deletes it when the lease ends. Both change only by transactions. These compare the revisions of
the last changes with the revisions that were seen; a missing key has revision 0. The versions in a View are these
revisions.

Invariants: a transaction is sent once, so `Lost` means that nothing was changed. Reads come from a majority.
An identity belongs to a single process. A process that reads its own identity as the holder's is the holder, also if
the answer to its election was lost, and renews the lease of the key.
Not handled: a store of etcd that was restored to an earlier state, as from a backup. It may assign revisions again.
"""

import contextlib
from collections.abc import AsyncGenerator

from msgspec import Struct

from libs.formats.state.leadership import LeadershipRecord
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View
from services.commitlog.rpc.coordinate import etcd_pb2 as pb
from services.commitlog.rpc.coordinate.endpoints import Connect, Endpoints, Method, connect
from services.commitlog.rpc.coordinate.record import Refused, decode, encode
from services.commitlog.rpc.coordinate.settings import EtcdConfig

RANGE: Method[pb.RangeRequest, pb.RangeResponse] = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
TXN: Method[pb.TxnRequest, pb.TxnResponse] = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
GRANT: Method[pb.LeaseGrantRequest, pb.LeaseGrantResponse] = Method(
    "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse
)
REVOKE: Method[pb.LeaseRevokeRequest, pb.LeaseRevokeResponse] = Method(
    "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse
)
# a stream in etcd's API; a single request with a single answer is the same on the wire
KEEP_ALIVE: Method[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse] = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse
)


class _Held(Struct, frozen=True):
    """The leader's key while this process holds it."""

    lease_id: int
    version: int


class EtcdCoordinator:
    """The client of etcd. See `Coordinator`. Each call has `timeout_ms` in total.

    The lease lasts `lease_duration_ms`, rounded up to seconds, and at least two seconds by etcd's own settings. The
    constructor raises ConfigError for a file that can't be read.
    """

    __slots__ = ("_endpoints", "_held", "_identity", "_leader_key", "_prefix", "_record_key", "_ttl_s")

    def __init__(
        self, config: EtcdConfig, *, prefix: str, identity: str, lease_duration_ms: int, connect: Connect = connect
    ) -> None:
        assert prefix.rstrip("/")
        assert identity
        assert lease_duration_ms > 0
        self._prefix = prefix.rstrip("/").encode()
        self._record_key, self._leader_key = self._prefix + b"/record", self._prefix + b"/leader"
        self._identity = identity
        self._ttl_s = -(-lease_duration_ms // 1000)
        self._held: _Held | None = None
        self._endpoints = Endpoints(config, connect)

    async def read(self) -> View:
        """Return the current state, by a majority of etcd. Raises CoordinatorUnavailable, also for a bad record."""
        _, view = await self._read()
        return view

    async def watch(self) -> AsyncGenerator[View, None]:
        """Yield the current state, and the state after changes. It ends only by CoordinatorUnavailable."""
        revision, view = await self._read()
        yield view
        create = pb.WatchCreateRequest(key=self._prefix + b"/", range_end=self._end, start_revision=revision + 1)
        async with contextlib.aclosing(self._endpoints.watch(create)) as responses:
            async for response in responses:
                if any(event.kv.mod_revision > revision for event in response.events):
                    revision, view = await self._read()
                    yield view

    async def elect(self, seen: View, record: LeadershipRecord) -> View:
        """Put both keys under a new lease. Raises Lost, and CoordinatorUnavailable: then the lease may be held."""
        end_s = self._endpoints.end_s()
        puts = [self._put_record(record)]
        granted = await self._endpoints.ask(GRANT, pb.LeaseGrantRequest(TTL=self._ttl_s), end_s)
        value = self._identity.encode()
        puts.append(pb.RequestOp(request_put=pb.PutRequest(key=self._leader_key, value=value, lease=granted.ID)))
        try:
            revision = await self._commit(self._as_seen(seen), puts, end_s)
        except (Lost, Refused):
            await self._revoke(granted.ID, end_s)
            raise
        self._hold(granted.ID, revision)
        return View(record, self._identity, revision, revision)

    async def renew(self) -> None:
        """Renew the lease, and check that the key still belongs to it. Raises Lost, CoordinatorUnavailable."""
        held = self._held
        if held is None:
            raise Lost("no lease is held")
        end_s = self._endpoints.end_s()
        kept = await self._endpoints.ask(KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=held.lease_id), end_s)
        if kept.TTL <= 0:
            self._let_go(held)
            raise Lost("the lease is over")
        found = await self._endpoints.ask(RANGE, pb.RangeRequest(key=self._leader_key), end_s)
        if [pair.mod_revision for pair in found.kvs] != [held.version]:
            self._let_go(held)
            await self._revoke(held.lease_id, end_s)
            raise Lost("the lease was taken")

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        """Put the record if this process is the holder and both keys are as seen.

        Raises Lost, CoordinatorUnavailable.
        """
        compares = [*self._as_seen(seen), self._is_ours]
        revision = await self._commit(compares, [self._put_record(record)], self._endpoints.end_s())
        return View(record, self._identity, revision, seen.holder_version)

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        """Put the record and delete the leader's key, as `change`. Raises Lost, CoordinatorUnavailable."""
        held, end_s = self._held, self._endpoints.end_s()
        deletion = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._leader_key))
        await self._commit([*self._as_seen(seen), self._is_ours], [self._put_record(record), deletion], end_s)
        if held is not None:
            self._let_go(held)
            await self._revoke(held.lease_id, end_s)

    async def close(self) -> None:
        """Close the connections. The lease ends by itself. Running calls fail."""
        await self._endpoints.close()

    @property
    def _end(self) -> bytes:
        """The exclusive end of the keys that begin with the prefix and a slash."""
        return self._prefix + bytes([ord("/") + 1])

    @property
    def _is_ours(self) -> pb.Compare:
        return pb.Compare(target=pb.Compare.VALUE, key=self._leader_key, value=self._identity.encode())

    def _as_seen(self, seen: View) -> list[pb.Compare]:
        versions = {self._record_key: seen.record_version, self._leader_key: seen.holder_version}
        return [pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=version) for key, version in versions.items()]

    def _put_record(self, record: LeadershipRecord) -> pb.RequestOp:
        """Return the operation. Raises Refused for a record that is too large to be read back."""
        return pb.RequestOp(request_put=pb.PutRequest(key=self._record_key, value=encode(record)))

    async def _commit(self, compares: list[pb.Compare], operations: list[pb.RequestOp], end_s: float) -> int:
        """Apply all operations or none, and return the revision of the changes. Raises Lost, CoordinatorUnavailable."""
        request = pb.TxnRequest(compare=compares, success=operations)
        done = await self._endpoints.ask(TXN, request, end_s, is_repeatable=False)
        if not done.succeeded:
            raise Lost("the record or its holder is not what was seen")
        return done.header.revision

    async def _read(self) -> tuple[int, View]:
        """Return the current state, and its revision of etcd."""
        request = pb.RangeRequest(key=self._prefix + b"/", range_end=self._end)
        found = await self._endpoints.ask(RANGE, request, self._endpoints.end_s())
        pairs = {pair.key: pair for pair in found.kvs}
        record = pairs.get(self._record_key, pb.KeyValue())
        leader = pairs.get(self._leader_key, pb.KeyValue())
        if leader.value == self._identity.encode():
            self._hold(leader.lease, leader.mod_revision)
        view = View(
            record=decode(record.value) if self._record_key in pairs else None,
            holder=leader.value.decode(errors="replace"),
            record_version=record.mod_revision,
            holder_version=leader.mod_revision,
        )
        return found.header.revision, view

    def _hold(self, lease_id: int, version: int) -> None:
        if self._held is None or version > self._held.version:  # answers may arrive in another order
            self._held = _Held(lease_id, version)

    def _let_go(self, held: _Held) -> None:
        """Forget the held key, unless a later election has replaced it."""
        if self._held is held:
            self._held = None

    async def _revoke(self, lease_id: int, end_s: float) -> None:
        """Try to end a lease without a key. After a failure it ends by itself."""
        with contextlib.suppress(CoordinatorUnavailable):
            await self._endpoints.ask(REVOKE, pb.LeaseRevokeRequest(ID=lease_id), end_s)
