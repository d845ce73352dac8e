# SPDX-License-Identifier: Apache-2.0
"""GetStatus: its numbers are copied by name, so each must exist under its name."""

from reput.commitlog.v1 import log_service_pb2 as pb

from services.commitlog.rpc.status import status_of
from tests.support.commitlog import Machine, append, fill


async def test_every_number_has_its_value() -> None:
    """The log's own values arrive, also if the counter of a statistic has another ending."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
    machine.clock.advance(1)
    log = await machine.start()
    await fill(log, 2)
    await append(log, durability=2)
    status = status_of(machine.process(log))
    zero = {field.name for field in pb.GetStatusResponse.DESCRIPTOR.fields if not getattr(status, field.name)}
    assert zero <= {
        "min_physical_offset", "indexed_physical_offset", "refusals", "raised_queue_count", "contradicting_queue_count",
        "store_time_ahead_ms", "replicas", "disk_used_percent", "role", "version", "replica_id",
    }  # fmt: skip
    assert status.appended_message_count == log.pipeline.message_count
    assert status.sync_count == log.flusher.work_count
    assert status.recovery.was_clean_stop
    assert status.recovery.scan_end == "clean end"
    assert status.recovery_progress.scanned_bytes > 0
    await machine.stop(log)
