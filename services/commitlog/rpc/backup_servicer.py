# SPDX-License-Identifier: Apache-2.0
"""BackupService: the state of the store for a backup, as a stream of parts."""

from collections.abc import AsyncGenerator, Callable

from msgspec import Struct
from reput.commitlog.v1 import backup_service_pb2 as pb

from libs.formats.limits import MIB
from libs.runtime.rpc.by_name import named
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.epochs import sent

PART_SIZE_BYTES = MIB


class BackupServicer(Struct, frozen=True, eq=False):
    """The servicer of reput.commitlog.v1.BackupService."""

    _log: Callable[[], OpenLog]
    _streams: InflightBudget

    async def ReadState(self, _: pb.ReadStateRequest, __: object) -> AsyncGenerator[pb.ReadStateResponse, None]:
        """Return the extent, then the files in parts. An empty file has one empty part."""
        with self._streams.held(1):
            state = await self._log().backup_states.take()
            yield pb.ReadStateResponse(extent=named(pb.BackupExtent, state, epochs=sent(state.epochs)))
            for name, data in state.files.items():
                for start in range(0, len(data) or 1, PART_SIZE_BYTES):
                    part = data[start : start + PART_SIZE_BYTES]
                    yield pb.ReadStateResponse(file=pb.BackupFile(name=name, data=part))
