# SPDX-License-Identifier: Apache-2.0
"""The clients of Delivery: each refusal of the log and of the index keeps its meaning."""

from collections.abc import Callable
from typing import Any

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.requests.errors import (
    BadArgument,
    ConsumerOffsetNotFound,
    DependencyUnavailable,
    LogFollows,
    RecordDamaged,
    Stopping,
    TopicNotFound,
)
from services.commitlog import errors as log_errors
from services.delivery.engine.ports.messages import Wanted
from services.delivery.errors import AppendRefused, JournalLost, JournalNotDurable, MessageDamaged
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.log_client import LogClient
from services.indexer import errors as index_errors
from services.indexer.rpc.error_table import ERROR_TABLE as INDEXER_ERRORS
from tests.support.calls import connection_to

DAMAGED = RecordDamaged(segment="0", position=7, reason="checksum")
FORGOTTEN = log_errors.WriterForgotten("w", 4)
GAP = log_errors.WriterSequenceGap("w", 4, expected=2)
TOO_LARGE = log_errors.BatchTooLarge("too large", value=9, limit=3)


class Failing:
    """A servicer whose calls fail, or return the answers of a test."""

    def __init__(self, *outcomes: Any) -> None:
        self._outcomes = list(outcomes)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*_: object) -> Any:
            outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return call


def log_of(*outcomes: Any) -> LogClient:
    """Return the client of a log."""
    servicer = Failing(*outcomes)
    names = ("AppendService", "LogService", "TopicService")
    return LogClient(connection_to(lambda: {f"reput.commitlog.v1.{name}": servicer for name in names}))


def index_of(failure: Exception) -> IndexClient:
    """Return the client of an index whose calls fail."""
    servicer = Failing(failure)
    names = ("QueueService", "ConsumerOffsetService", "GroupConfigService")
    services = {f"reput.indexer.v1.{name}": servicer for name in names}
    return IndexClient(connection_to(lambda: services, table=INDEXER_ERRORS))


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        (FORGOTTEN, JournalLost, f"another process wrote the journal: {FORGOTTEN}"),
        (GAP, JournalLost, f"another process wrote the journal: {GAP}"),
        (TOO_LARGE, AppendRefused, f"BATCH_TOO_LARGE: {TOO_LARGE}"),
        (
            log_errors.NotLeader(),
            LogFollows,
            f"commitlog is not available: UNAVAILABLE: {log_errors.NotLeader()}",
        ),
        (Stopping(), DependencyUnavailable, f"commitlog is not available: UNAVAILABLE: {Stopping()}"),
    ],
)
async def test_a_write_that_fails(failure: Exception, kind: type[Exception], text: str) -> None:
    """Refusals of the record, of its number, and of the log raise three different errors."""
    with pytest.raises(kind) as caught:
        await log_of(failure).write(4, b"", (), is_safe=True)
    assert type(caught.value) is kind
    assert str(caught.value) == text


async def test_a_write_without_an_answer() -> None:
    """Whether the log has the record is unknown."""
    with pytest.raises(JournalLost, match="nobody knows whether it was stored: UNAVAILABLE: nobody listens"):
        await LogClient(connection_to(dict)).write(4, b"", (), is_safe=True)


async def test_a_write_that_is_refused_after_it_was_stored() -> None:
    """It is in the log, and may be undone: the text has the code and the text of the log."""
    late = pb.AppendStateResponse(result=pb.AppendResult(is_late=True))
    with pytest.raises(JournalNotDurable, match=r"is lost \(FAILED_PRECONDITION: a sync or a write failed") as caught:
        await log_of(late, log_errors.StoreSealed()).write(4, b"", (), is_safe=True)
    assert type(caught.value) is JournalNotDurable


async def test_the_next_number() -> None:
    """The log tells it, or has no record of the journal yet."""
    assert await log_of(GAP).next_number() == 2
    assert await log_of(FORGOTTEN).next_number() == 0
    with pytest.raises(LogFollows):
        await log_of(log_errors.NotLeader()).next_number()


async def test_a_topic_that_is_not_there() -> None:
    """Clients hear the text."""
    assert await log_of(TopicNotFound("orders", field="name")).refusal("orders") == "there is no topic orders"


async def test_what_an_index_lacks() -> None:
    """A queue without messages begins at 0, and a group that committed nothing has no offset."""
    assert await index_of(index_errors.QueueNotFound("orders", 1)).offset_at("orders", 1, 5) == 0
    assert await index_of(ConsumerOffsetNotFound("g", "orders", 1)).stored_offset("g", "orders", 1) is None


async def test_a_damaged_message() -> None:
    """Damage concerns a single message, and the error names the service."""
    with pytest.raises(MessageDamaged, match="indexer is not available: DATA_LOSS: segment 0 is damaged at byte 7"):
        await index_of(DAMAGED).journal(0, wait_s=0)


async def test_a_refused_filter_is_told_to_its_caller() -> None:
    """With the field at fault. Elsewhere a refused argument is a fault between the services."""
    failure = BadArgument("no such operator", field="where", value="?", limit=3)
    with pytest.raises(BadArgument) as caught:
        await index_of(failure).pull("t", 0, 0, wanted=Wanted(), count=1, size_bytes=1, wait_s=0)
    error = caught.value
    assert (error.field, error.value, error.limit) == ("where", "?", "3")
    assert str(error) == "where: the indexer refuses it: INVALID_ARGUMENT: where: no such operator"
    with pytest.raises(DependencyUnavailable):
        await index_of(failure).bounds("t")
