# SPDX-License-Identifier: Apache-2.0
"""Results of appends as bytes, read with the stubs."""

from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats.records.host import Host
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.rpc.append_result import AppendResultEncoder, error_outcome, stream_response
from tests.support.commitlog import Machine, append, message

BATCH = AppendedBatch(
    start_physical_offset=10,
    end_physical_offset=30,
    store_time_ms=1_700_000_000_000,
    requested_durability=0,
    message_count=2,
    physical_offsets=(10).to_bytes(8, "little") + (20).to_bytes(8, "little"),
    queue_offsets=(5).to_bytes(8, "little") + (2**40).to_bytes(8, "little"),
    queue_ids=(3).to_bytes(4, "little") + (65_534).to_bytes(4, "little"),
)


def test_a_result_is_what_the_proto_says() -> None:
    """Every field arrives, the address of the store included."""
    encoder = AppendResultEncoder(Host.parse("[2001:db8::5]:7101"))
    result = pb.AppendResponse.FromString(encoder.response(BATCH, 2)).result
    assert (result.start_physical_offset, result.end_physical_offset) == (10, 30)
    assert (result.store_time_ms, result.durability) == (1_700_000_000_000, 2)
    assert list(result.physical_offsets) == [10, 20]
    assert list(result.queue_offsets) == [5, 2**40]
    assert list(result.queue_ids) == [3, 65_534]
    assert (len(result.store_host.address), result.store_host.port) == (16, 7101)
    assert (result.is_late, result.is_repeated) == (False, False)
    assert pb.AppendResponse.FromString(encoder.response(BATCH, 2, is_late=True)).result.is_late


def test_outcomes_of_a_stream() -> None:
    """Results and errors keep their order in one response."""
    encoder = AppendResultEncoder(Host.parse("10.0.0.5:0"))
    outcomes = [encoder.response(BATCH, 1), error_outcome(Status(code=3, message="no")), encoder.response(BATCH, 2)]
    response = pb.AppendStreamResponse.FromString(stream_response(outcomes))
    assert [outcome.WhichOneof("outcome") for outcome in response.outcomes] == ["result", "error", "result"]
    assert response.outcomes[1].error.message == "no"
    assert [response.outcomes[index].result.durability for index in (0, 2)] == [1, 2]


async def test_columns_of_a_real_batch() -> None:
    """The columns of the engine arrive in the proto."""
    machine = Machine()
    async with machine.running() as log:
        batch = await append(log, message(queue_id=1), message(queue_id=2), message(queue_id=1))
        encoded = AppendResultEncoder(log.store_host).response(batch, 1)
    result = pb.AppendResponse.FromString(encoded).result
    assert list(result.queue_ids) == [1, 2, 1]
    assert list(result.queue_offsets) == [0, 0, 1]
    assert result.physical_offsets[0] == result.start_physical_offset == 0
    assert result.physical_offsets[2] < result.end_physical_offset
