# SPDX-License-Identifier: Apache-2.0
"""Processor time of the front for a unary call, without a socket: python -m bench.inside.front [ROUNDS].

Both builds of the HTTP/2 session take turns. `empty` answers with fixed bytes; `append` appends a message of 1 KiB to a
log in memory. The least of the rounds counts. The caller's side is not measured.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import ngh2
import uvloop
from reput.commitlog.v1 import append_service_pb2
from reput.common.v1 import message_pb2

from bench import batches
from libs.formats.records.host import Host
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from libs.runtime.http2.framing import framed
from libs.runtime.http2.server import Http2Server
from libs.runtime.http2.session import build
from libs.runtime.http2.session.plain import PlainSession
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.rpc.fronts.in_loop import Http2Front
from libs.runtime.rpc.handlers import Surroundings, service_handler
from libs.runtime.settings import ServerConfig
from libs.runtime.watch.telemetry import Telemetry
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_servicer import RAW_METHODS, AppendServicer

SERVICE = "reput.commitlog.v1.AppendService"
LARGE = 1 << 28
CALLS = 512
"""Calls of a round."""


class _Transport(asyncio.Transport):
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 4000) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class _Caller:
    """A caller and its connection to a server."""

    def __init__(self, server: Http2Server) -> None:
        self._transport = _Transport()
        self._connection = server._connection()  # noqa: SLF001 - as a listener does
        self._connection.connection_made(self._transport)
        self._wire = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self._wire.initiate_connection({ngh2.Setting.ENABLE_PUSH: 0})
        self._ended = 0
        self._exchange()

    async def calls_s(self, count: int, message: bytes) -> float:
        """Make calls at once. Returns the server's processor time."""
        frame = b"".join(framed(message))
        fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", f"/{SERVICE}/Append".encode()))
        more = ((b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc"))
        for _ in range(count):
            stream_id = self._wire.send_request((*fields, *more, (b"grpc-timeout", b"29999871u")))
            self._wire.send_data(stream_id, frame, end_stream=True)
        until, spent_s = self._ended + count, 0.0
        while self._ended < until:
            data = self._wire.data_to_send()
            begin_s = time.process_time()
            if data:
                self._arrive(data)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            spent_s += time.process_time() - begin_s
            self._take()
        return spent_s

    def _arrive(self, data: bytes) -> None:
        place = self._connection.get_buffer(-1)
        while data:
            size = min(len(place), len(data))
            place[:size], data = data[:size], data[size:]
            self._connection.buffer_updated(size)

    def _take(self) -> None:
        written, self._transport.written = self._transport.written, []
        if written:
            self._wire.receive_data(b"".join(written))
            self._ended += sum(isinstance(event, ngh2.StreamClosed) for event in self._wire.events())

    def _exchange(self) -> None:
        self._take()
        self._arrive(self._wire.data_to_send())
        self._connection.flush()
        self._take()


@asynccontextmanager
async def _empty() -> AsyncIterator[grpc.GenericRpcHandler]:
    async def answer(_request: bytes, _context: Any) -> bytes:
        return b"\x0a\x30" + b"x" * 48

    yield grpc.method_handlers_generic_handler(SERVICE, {"Append": grpc.unary_unary_rpc_method_handler(answer)})


class _Open:
    """A gate that is open."""

    is_ready = True
    is_stopping = False


@asynccontextmanager
async def _append() -> AsyncIterator[grpc.GenericRpcHandler]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        config = CommitLogConfig(data_dir=Path(folder), flush_mode="async", disk_full_percent=100, disk_reserve_bytes=0)
        commit_log = CommitLog(config, PosixFs(), SystemClock(), on_failure=print)
        log = await commit_log.open(Host.parse("127.0.0.1:1001"))
        servicer = AppendServicer(lambda: log, InflightBudget("s", LARGE), InflightBudget("b", LARGE), config)
        bounds = CallBounds(call_count_max=LARGE, answer_bytes_max=LARGE, unread_timeout_s=60)
        telemetry = Telemetry.off()
        yield service_handler(
            append_service_pb2.DESCRIPTOR.services_by_name["AppendService"],
            servicer,
            Surroundings(errors={}, gate=_Open(), bounds=bounds, trusted_bounds=bounds, telemetry=telemetry),
            raw=RAW_METHODS,
            turns={"Append": servicer.append_turn},
        )
        await commit_log.close()


async def _measure(rounds: int) -> None:
    request = batches.build(
        body_size_bytes=1024, batch_size_bytes=1, durability=message_pb2.DURABILITY_MEMORY, variant=0
    ).data
    kinds: dict[str, Callable[[], Any]] = {"empty": _empty, "append": _append}
    for kind, make in kinds.items():
        async with make() as handler:
            callers = {}
            for name, session in (("compiled", build.compiled()), ("plain", PlainSession)):
                build.best = lambda session=session: (session, "")  # type: ignore[misc]
                server = Http2Front(ServerConfig(port=0), 17 << 20, LARGE)
                server.add_generic_rpc_handlers([handler])
                callers[name] = _Caller(server)
            for at_once in (64, 1):
                least = await _least_us(callers, at_once, request, rounds)
                text = ", ".join(f"{name} {us:6.1f} µs" for name, us in least.items())
                print(f"{kind:7s} {at_once:3d} at once: {text} a call", flush=True)


async def _least_us(callers: dict[str, _Caller], at_once: int, request: bytes, rounds: int) -> dict[str, float]:
    least = dict.fromkeys(callers, float("inf"))
    for _ in range(rounds):
        for name, caller in callers.items():
            spent_s = 0.0
            for _ in range(CALLS // at_once):
                spent_s += await caller.calls_s(at_once, request)
            least[name] = min(least[name], spent_s / CALLS * 1e6)
    return least


if __name__ == "__main__":
    uvloop.run(_measure(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
