# SPDX-License-Identifier: Apache-2.0
"""Planned refusals: each kind of method refuses the calls that a test chose, on each front, and no other."""

from collections.abc import Iterator

import grpc
import pytest
from google.rpc.status_pb2 import Status

from libs.runtime.rpc import planned
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime.servers import APPEND, APPEND_STREAM, DISPATCH, GET_STATUS, serving

pytestmark = pytest.mark.usefixtures("each_front")

FULL = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="planned")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No plan outlives its test."""
    yield
    for path in (APPEND, APPEND_STREAM, DISPATCH, GET_STATUS):
        planned.forget(path[1:])


def refuse(path: str, count: int = 1) -> None:
    """Refuse the next calls of a method."""
    left = [FULL] * count
    planned.plan(path[1:], lambda _: left.pop() if left else None)


@pytest.mark.parametrize("path", [APPEND, GET_STATUS])
async def test_a_call_is_refused_before_its_method_runs(path: str) -> None:
    """The planned calls fail with the planned status, the method is not called; the next call is served."""
    async with serving() as served:
        refuse(path, 2)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await served.call(path)
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "planned")
        assert served.append.requests == []
        await served.call(path)


async def test_a_request_of_a_stream_is_refused() -> None:
    """A stream ends at the planned request, and has answered those before."""
    async with serving() as served:
        stream = served.channel.stream_stream(APPEND_STREAM)(timeout=LIMIT_S)
        await stream.write(b"a")
        assert await stream.read() == b"a"
        refuse(APPEND_STREAM)
        await stream.write(b"b")
        with pytest.raises(grpc.aio.AioRpcError, match="planned"):
            await stream.read()
        assert served.append.requests == [b"a"]


async def test_a_stream_of_answers_is_refused() -> None:
    """A stream of answers does not begin."""
    async with serving() as served:
        refuse(DISPATCH)
        stream = served.channel.unary_stream(DISPATCH)(b"", timeout=LIMIT_S)
        with pytest.raises(grpc.aio.AioRpcError, match="planned"):
            await stream.read()


async def test_a_forgotten_plan_refuses_nothing() -> None:
    """After `forget` all is as before."""
    async with serving() as served:
        refuse(APPEND)
        planned.forget(APPEND[1:])
        assert not planned.is_planned(APPEND[1:])
        assert await served.call(APPEND, b"a") == b"a"
