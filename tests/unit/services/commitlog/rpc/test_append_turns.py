# SPDX-License-Identifier: Apache-2.0
"""Appends of a turn of the event loop that are taken together: each gets the answer that its own call would get."""

from collections import Counter
from typing import Any, cast

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as pb
from reput.common.v1 import message_pb2

from libs.runtime.http2.turns import Outcome, TurnCall, TurnHandler
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.rpc.handlers import Surroundings, service_handler
from libs.runtime.watch.telemetry import Telemetry
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.gate import Reason
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.errors import LeaseOver
from services.commitlog.rpc.append_servicer import RAW_METHODS, AppendServicer
from services.commitlog.rpc.error_table import ERROR_TABLE
from tests.support.commitlog import Machine, append, bodies, make_config, message, request

PEER = "ipv4:10.0.0.1:99"
PATH = "/reput.commitlog.v1.AppendService/Append"


class Gate:
    """The gate of a server."""

    is_ready = True
    is_stopping = False


class Taken:
    """A call of a turn."""

    def peer(self) -> str:
        return PEER


class Context:
    """The context of a call that is run for its outcome."""

    def __init__(self) -> None:
        self.ended: tuple[grpc.StatusCode, str] | None = None
        self.callbacks: list[Any] = []

    def peer(self) -> str:
        return PEER

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def add_done_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    async def abort(self, code: grpc.StatusCode, text: str, metadata: Any) -> None:
        self.ended = code, text


class Served:
    """The method Append of a log, as a front has it."""

    def __init__(self, log: OpenLog, inflight_bytes_max: int = 1 << 20, call_count_max: int = 100) -> None:
        self.gate = Gate()
        self.inflight = InflightBudget("bytes", inflight_bytes_max)
        self.bounds = CallBounds(call_count_max=call_count_max, answer_bytes_max=1 << 20, unread_timeout_s=1.0)
        servicer = AppendServicer(lambda: log, InflightBudget("streams", 1), self.inflight, make_config())
        self.telemetry = Telemetry.off()
        surroundings = Surroundings(
            errors=ERROR_TABLE,
            gate=self.gate,
            bounds=self.bounds,
            trusted_bounds=self.bounds,
            telemetry=self.telemetry,
        )
        service = pb.DESCRIPTOR.services_by_name["AppendService"]
        turns = {"Append": servicer.append_turn}
        handler = service_handler(service, servicer, surroundings, raw=RAW_METHODS, turns=turns)
        found = handler.service(cast("grpc.HandlerCallDetails", type("Details", (), {"method": PATH})))
        assert isinstance(found, TurnHandler)
        self.handler = found

    def turn(self, *requests: bytes) -> list[Outcome]:
        """Take requests together."""
        assert self.handler.turn is not None
        return list(self.handler.turn(requests, [cast("TurnCall", Taken())] * len(requests)))

    async def end_of(self, asked: bytes, outcome: Outcome) -> pb.AppendResult | grpc.StatusCode:
        """Return the end of a call with this outcome."""
        context = Context()
        answer = outcome if isinstance(outcome, bytes) else await outcome(asked, context)
        if context.ended is not None:
            return context.ended[0]
        return pb.AppendResponse.FromString(answer).result

    def counts(self) -> Counter[str]:
        """Return the number of counted calls by status."""
        (family,) = (one for one in self.telemetry.registry.collect() if one.name.endswith("rpc_duration_seconds"))
        return Counter({one.labels["code"]: int(one.value) for one in family.samples if one.name.endswith("_count")})


async def test_each_call_gets_its_own_answer() -> None:
    """Small requests in memory are answered at once; all others by a call of their own, in any order."""
    disk = message_pb2.DURABILITY_LOCAL_DISK
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        served = Served(log)
        requests = [
            request(message(b"0")),
            request(message(b"1"), durability=disk),
            request(message(topic="no/name")),
            request(message(b"3"), writer=pb.Writer(id="w", sequence=0)),
            request(message(b"4", topic="new")),
            b"\xff",
            request(message(b"6"), message(b"66")),
        ]
        outcomes = served.turn(*requests)
        assert [isinstance(outcome, bytes) for outcome in outcomes] == [True, False, False, False, False, False, True]
        assert served.inflight.charged == 0
        ends = [await served.end_of(asked, outcome) for asked, outcome in zip(requests, outcomes, strict=True)]
        assert [end for end in ends if isinstance(end, int | grpc.StatusCode)] == [
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.INVALID_ARGUMENT,
        ]
        results = {number: end for number, end in enumerate(ends) if isinstance(end, pb.AppendResult)}
        assert {number: result.durability for number, result in results.items()} == {
            0: message_pb2.DURABILITY_MEMORY, 1: disk, 3: message_pb2.DURABILITY_MEMORY,
            4: message_pb2.DURABILITY_MEMORY, 6: message_pb2.DURABILITY_MEMORY,
        }  # fmt: skip
        assert sorted(bodies(log)) == sorted([b"topic", b"0", b"1", b"3", b"4", b"6", b"66"])
        offsets = {offset for result in results.values() for offset in result.physical_offsets}
        assert len(offsets) == 6
        assert served.counts() == {"OK": 5, "INVALID_ARGUMENT": 2}
        assert (served.bounds.calls.count, served.inflight.charged) == (0, 0)


async def test_a_call_alone_needs_no_task() -> None:
    """A single request is answered at once, too."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        (outcome,) = Served(log).turn(request(message(b"alone")))
        assert isinstance(outcome, bytes)
        assert bodies(log) == [b"topic", b"alone"]


@pytest.mark.parametrize("why", ["gate", "recovering", "calls", "bytes", "writes"])
async def test_what_refuses_a_call_refuses_each_of_a_turn(why: str) -> None:
    """Nothing is appended together then, and each call gets its own refusal."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        served = Served(log, inflight_bytes_max=1 if why == "bytes" else 1 << 20)
        if why == "bytes":
            served.inflight.charge(1)
        elif why == "calls":
            served.bounds.calls.count = 100
        elif why == "writes":
            log.gate.put(Reason.DISK_RESERVE_SHORT, holds=True)
        else:
            served.gate.is_stopping, served.gate.is_ready = why == "gate", why == "gate"
        asked = request(message(b"x"))
        outcomes = served.turn(asked, asked)
        assert outcomes == [served.handler.unary_unary] * 2
        ends = [await served.end_of(asked, outcome) for outcome in outcomes]
        assert all(isinstance(end, grpc.StatusCode) for end in ends), ends
        assert bodies(log) == [b"topic"]


async def test_an_appended_batch_is_not_refused_afterwards() -> None:
    """A server that stops, or is full by then, still answers a call whose batch it has appended."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        served = Served(log)
        asked = request(message(b"x"), durability=message_pb2.DURABILITY_LOCAL_DISK)
        (outcome,) = served.turn(asked)
        served.gate.is_stopping = True
        served.bounds.calls.count = 100
        end = await served.end_of(asked, outcome)
        assert isinstance(end, pb.AppendResult)
        assert served.bounds.calls.count == 100


async def test_a_lease_that_ends_is_the_outcome_of_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement that fails ends its own call with its error."""
    async with Machine().running() as log:
        await append(log, message(b"topic"))
        served = Served(log)

        def over(_: object) -> None:
            raise LeaseOver

        monkeypatch.setattr(type(log.acknowledgements), "of", lambda _self, batch: over(batch))
        asked = request(message(b"x"))
        (outcome,) = served.turn(asked)
        assert await served.end_of(asked, outcome) == ERROR_TABLE[LeaseOver].code


async def test_a_large_answer_is_counted_until_it_is_read() -> None:
    """The answer of a batch with many messages counts as each other large answer."""
    async with Machine(segment_size_bytes=1 << 22).running() as log:
        await append(log, message(b"topic"))
        served = Served(log)
        asked = request(*[message(b"") for _ in range(2_000)])
        assert len(asked) < 64 << 10
        (outcome,) = served.turn(asked)
        assert not isinstance(outcome, bytes)
        context = Context()
        answer = await outcome(asked, context)
        assert served.bounds.answers.charged_bytes == len(answer)
        for callback in context.callbacks:
            callback(context)
        assert served.bounds.answers.charged_bytes == 0
