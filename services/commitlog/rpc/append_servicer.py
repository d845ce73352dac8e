# SPDX-License-Identifier: Apache-2.0
"""AppendService on raw bytes: a request stays bytes from the socket to the segment."""

from collections.abc import AsyncGenerator, AsyncIterator

from libs.runtime.rpc.handlers import Context
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_result import AppendResultEncoder
from services.commitlog.rpc.append_stream import AppendStreamSession
from services.commitlog.rpc.peer import born_host

RAW_METHODS = ("Append", "AppendStream")
"""Methods that take requests as bytes."""


class AppendServicer:
    """Serves reput.commitlog.v1.AppendService."""

    def __init__(self, commit_log: CommitLog, streams: InflightBudget) -> None:
        self._commit_log = commit_log
        self._streams = streams
        self._inflight = InflightBudget("bytes", commit_log.config.append_inflight_bytes_max)
        self._sessions: set[AppendStreamSession] = set()
        self._encoder: AppendResultEncoder | None = None

    async def Append(self, request: bytes, context: Context) -> bytes:
        """One batch, answered at its durability."""
        with self._inflight.held(len(request)):
            batch = await self._commit_log.append(request, born_host(context.peer()))
            durability = await self._commit_log.wait_sync(self._commit_log.sync_of(batch))
        return self._result_encoder().response(batch, durability)

    async def AppendStream(self, requests: AsyncIterator[bytes], context: Context) -> AsyncGenerator[bytes, None]:
        """See AppendStreamSession."""
        with self._streams.held(1):
            session = AppendStreamSession(
                self._commit_log, self._result_encoder(), self._inflight, born_host(context.peer())
            )
            self._sessions.add(session)
            try:
                async for response in session.responses(requests):
                    yield response
            finally:
                self._sessions.discard(session)

    def drain(self) -> None:
        """Let the streams end after the outcomes that they owe."""
        for session in self._sessions:
            session.stop()

    def _result_encoder(self) -> AppendResultEncoder:
        if self._encoder is None:
            self._encoder = AppendResultEncoder(self._commit_log.store_host)
        return self._encoder
