# SPDX-License-Identifier: Apache-2.0
"""LogService: reads records and follows the log's end. Records and columns stay bytes."""

import contextlib
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from msgspec import Struct
from reput.commitlog.v1 import log_service_pb2 as pb

from libs.formats import fields
from libs.formats.limits import READ_COUNT_MAX
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import dispatch_columns
from libs.kernel.answer import encode_cy
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument
from libs.runtime.rpc.by_name import named
from services.commitlog.engine.follow.dispatch import TailStep
from services.commitlog.engine.follow.queue_offset_check import QueueEnd
from services.commitlog.engine.follow.reader import RecordRun
from services.commitlog.engine.keep.checkpoint import IndexerReport
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.errors import BeyondMaxOffset
from services.commitlog.rpc.epochs import epochs_of, sent
from services.commitlog.rpc.status import StatusServicer

RESPONSE_SIZE_BYTES_DEFAULT, RESPONSE_SIZE_BYTES_MAX = 1 << 20, 8 << 20
DISPATCH_COUNT_DEFAULT, DISPATCH_COUNT_MAX = 8_192, 32_768


class LogServicer(Struct, frozen=True, eq=False):
    """The servicer of reput.commitlog.v1.LogService.

    Streams of clients and streams of services have a budget each.
    """

    _log: Callable[[], OpenLog]
    _status: StatusServicer
    _streams: InflightBudget
    _service_streams: InflightBudget

    async def GetStatus(self, request: pb.GetStatusRequest, context: object) -> pb.GetStatusResponse:
        """Return the state of the log, also while it is being recovered."""
        return await self._status.GetStatus(request, context)

    async def ReadRecords(self, request: pb.ReadRecordsRequest, _: object) -> bytes:
        """Return the records that are still in the log, checked."""
        offsets, sizes = request.physical_offsets, request.record_sizes_bytes
        check_range(len(offsets), "physical_offsets", least=1, most=READ_COUNT_MAX)
        if sizes and len(sizes) != len(offsets):
            reason = "there must be one size for each offset, or none"
            raise BadArgument(reason, field="record_sizes_bytes", value=len(sizes), limit=len(offsets))
        for index, offset in enumerate(offsets):
            check_range(offset, f"physical_offsets[{index}]")
        for index, size in enumerate(sizes):
            check_range(size, f"record_sizes_bytes[{index}]", least=1)
        is_raw = _is_raw(request.view)
        reader = self._log().reader
        batch = reader.read(offsets, sizes, size_bytes_max=RESPONSE_SIZE_BYTES_MAX)
        return b"".join(
            (
                length_delimited(fields.READ_RECORDS_RESPONSE_RECORD_SIZES_BYTES, array("i", batch.sizes).tobytes()),
                _records(
                    batch.runs,
                    is_raw=is_raw,
                    raw_field=fields.READ_RECORDS_RESPONSE_RECORDS,
                    messages_field=fields.READ_RECORDS_RESPONSE_MESSAGES,
                ),
                int_field(fields.READ_RECORDS_RESPONSE_MIN_PHYSICAL_OFFSET, reader.min_physical_offset),
                int_field(fields.READ_RECORDS_RESPONSE_MAX_PHYSICAL_OFFSET, reader.end_physical_offset),
            )
        )

    async def StreamRecords(self, request: pb.StreamRecordsRequest, _: object) -> AsyncGenerator[bytes, None]:
        """Return all records of a range."""
        is_raw = _is_raw(request.view)
        start = check_range(request.start_physical_offset, "start_physical_offset")
        end = check_range(request.end_physical_offset, "end_physical_offset")
        size_max = size_of_page(
            request,
            "response_size_bytes_max",
            default=RESPONSE_SIZE_BYTES_DEFAULT,
            most=RESPONSE_SIZE_BYTES_MAX,
        )
        log = self._log()
        confirmed = log.reader.end_physical_offset
        if end > confirmed:
            raise BeyondMaxOffset(end, max_physical_offset=confirmed, field="end_physical_offset")
        if 0 < end < start:
            raise BadArgument("the range ends before it starts", field="end_physical_offset", value=end, limit=start)
        stretches = log.reader.stretches(start, end or confirmed, size_bytes_max=size_max)
        with self._streams.held(1), contextlib.closing(stretches):
            for stretch in stretches:
                yield b"".join(
                    (
                        int_field(fields.STREAM_RECORDS_RESPONSE_START_PHYSICAL_OFFSET, stretch.start_physical_offset),
                        int_field(fields.STREAM_RECORDS_RESPONSE_END_PHYSICAL_OFFSET, stretch.end_physical_offset),
                        int_field(fields.STREAM_RECORDS_RESPONSE_RECORD_COUNT, len(stretch.run.positions)),
                        _records(
                            [stretch.run],
                            is_raw=is_raw,
                            raw_field=fields.STREAM_RECORDS_RESPONSE_RECORDS,
                            messages_field=fields.STREAM_RECORDS_RESPONSE_MESSAGES,
                        ),
                    )
                )
                log.followers.check_draining()

    async def Dispatch(
        self, request: pb.DispatchRequest, _: object
    ) -> AsyncGenerator[bytes | pb.DispatchResponse, None]:
        """Follow the log: a handshake, then columns and heartbeats."""
        start = check_range(request.start_physical_offset, "start_physical_offset")
        epoch = check_range(request.epoch, "epoch")
        epochs = epochs_of(request.epochs, "epochs")
        count_max = size_of_page(request, "record_count_max", default=DISPATCH_COUNT_DEFAULT, most=DISPATCH_COUNT_MAX)
        log = self._log()
        with self._service_streams.held(1), log.other_histories.followed(request.history_id, start):
            handshake = log.followers.handshake(start, epoch, epochs)
            told = log.topics.begins.by_topic
            yield pb.DispatchResponse(
                handshake=named(
                    pb.DispatchHandshake,
                    handshake,
                    set_apart_topics=[
                        pb.DispatchSetApart(topic=topic, why=why) for topic, why in log.topics.set_apart.reasons.items()
                    ],
                    epochs=sent(handshake.epochs),
                    topic_begins=_topic_begins(told, {}),
                )
            )
            tail = log.followers.tail(start_physical_offset=handshake.start_physical_offset, record_count_max=count_max)
            async for step in tail.steps():
                begins = log.topics.begins.by_topic
                if begins is not told:  # before the records of a recreated topic
                    yield _heartbeat(log, _topic_begins(begins, told))
                    told = begins
                yield _step(log, step)

    async def ReportProgress(self, request: pb.ReportProgressRequest, _: object) -> pb.ReportProgressResponse:
        """Record the Indexer's progress."""
        log = self._log()
        log.followers.report(
            IndexerReport(**{name: getattr(request, name) for name in IndexerReport.__struct_fields__})
        )
        log.other_histories.note_own(request.history_id)
        return named(pb.ReportProgressResponse, log.replica_state)

    async def CheckQueueOffsets(
        self, requests: AsyncIterator[pb.CheckQueueOffsetsRequest], _: object
    ) -> pb.CheckQueueOffsetsResponse:
        """Compare the Indexer's queues with the next queue offsets. The comparison is complete when the stream ends."""
        raised_count = contradicting_count = 0
        is_complete = False
        log = self._log()
        with self._service_streams.held(1):
            async for request in requests:
                log.followers.check_draining()
                log.followers.check(request.epoch, request.history_id)
                is_complete = request.is_complete
                ends = [
                    QueueEnd(end.topic, end.queue_id, end.end_queue_offset, end.last_physical_offset)
                    for end in request.queues
                ]
                verdict = await log.queue_offsets.compare(ends)
                raised_count += verdict.raised_count
                contradicting_count += verdict.contradicting_count
        log.queue_offsets.finish(is_complete=is_complete)
        return pb.CheckQueueOffsetsResponse(
            raised_queue_count=raised_count,
            contradicting_queue_count=contradicting_count,
        )


def _step(log: OpenLog, step: TailStep) -> bytes | pb.DispatchResponse:
    """Return columns, or a heartbeat if nothing is new."""
    if step.response:
        return step.response
    if step.columns is not None:
        return dispatch_columns.encode(step.columns, step.start_physical_offset, step.end_physical_offset)
    return _heartbeat(log, [])


def _heartbeat(log: OpenLog, topic_begins: list[pb.DispatchTopicBegin]) -> pb.DispatchResponse:
    return pb.DispatchResponse(
        heartbeat=pb.DispatchHeartbeat(
            confirmed_physical_offset=log.reader.end_physical_offset,
            min_physical_offset=log.reader.min_physical_offset,
            topic_begins=topic_begins,
        )
    )


def _topic_begins(begins: Mapping[str, int], told: Mapping[str, int]) -> list[pb.DispatchTopicBegin]:
    """Return the begins that differ from the begins that were sent before."""
    changed = [topic for topic in {**told, **begins} if begins.get(topic, 0) != told.get(topic, 0)]
    return [pb.DispatchTopicBegin(topic=topic, begin_physical_offset=begins.get(topic, 0)) for topic in changed]


def _is_raw(view: int) -> bool:
    check_range(view, "view", most=pb.RECORD_VIEW_RAW)
    return view == pb.RECORD_VIEW_RAW


def _records(runs: list[RecordRun], *, is_raw: bool, raw_field: int, messages_field: int) -> bytes:
    """Return the records in the requested form, as fields of a response."""
    if is_raw:
        return length_delimited(raw_field, b"".join(piece for run in runs for piece in run.raw()))
    return b"".join(
        encode_cy.encode_messages(run.buffer, run.positions, run.sizes, len(run.positions), messages_field)
        for run in runs
    )
