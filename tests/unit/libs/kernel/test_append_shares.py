# SPDX-License-Identifier: Apache-2.0
"""Topics of which other logs have some queues: callers name one of the queues that are here."""

import pytest

from libs.kernel import layout
from libs.kernel.append.topic_table import TopicTable
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import Appender, message, request

T = b"shared"


def made(build: Build, own: list[int] | None, *, queue_count: int = 6) -> Appender:
    """An appender whose table has the topic, of which these queues are here."""
    appender = Appender(build)
    appender.table.put_topic(T, write_queue_count=queue_count, is_writable=True, own_queue_ids=own)
    return appender


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_queues_that_are_here(build: Build) -> None:
    """Messages go to the queues that are here. Other queues, and messages without a queue, are refused as a whole."""
    appender = made(build, [2, 5])
    assert appender.append(request(message(T, queue_id=5), message(T, queue_id=2))) > 0
    assert [queue_id for queue_id, _, _ in appender.placed()] == [5, 2]
    before = appender.table.counters()
    for queue_id, value in ((0, 0), (4, 4), (None, layout.SERVER_CHOOSES)):
        refused = request(message(T, queue_id=2), message(T, queue_id=queue_id))
        assert appender.append(refused) == layout.E_QUEUE_ELSEWHERE
        columns = appender.columns
        assert (columns.error_index, columns.error_field, columns.error_value) == (1, 2, value)
    assert appender.append(request(message(T, queue_id=6))) == layout.E_QUEUE
    assert appender.table.counters() == before


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_the_store_itself_may_append_to_all_queues(build: Build) -> None:
    """Messages that come due, or whose transaction commits, come to the queue that they were sent to."""
    appender = made(build, [2])
    appender.limits = {**appender.limits, "is_internal": True}
    assert appender.append(request(message(T, queue_id=3))) > 0


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_sealed_queues(build: Build) -> None:
    """Clients' messages for a sealed queue are refused. The store's own messages without a queue get an open queue."""
    appender = made(build, [2, 5])
    appender.table.put_topic(T, write_queue_count=6, is_writable=True, own_queue_ids=[2, 5], sealed_queue_ids=[2])
    assert appender.append(request(message(T, queue_id=2))) == layout.E_QUEUE_ELSEWHERE
    assert appender.append(request(message(T, queue_id=5))) > 0
    appender.limits = {**appender.limits, "is_internal": True}
    assert appender.append(request(*(message(T, queue_id=None) for _ in range(9)))) > 0
    assert [queue_id for queue_id, _, _ in appender.placed()] == [5] * 9
    appender.table.put_topic(T, write_queue_count=6, is_writable=True, own_queue_ids=[2, 5], sealed_queue_ids=[2, 5])
    assert appender.append(request(*(message(T, queue_id=None) for _ in range(4)))) > 0
    assert {queue_id for queue_id, _, _ in appender.placed()} <= {2, 5}
    appender.table.put_topic(T, write_queue_count=6, is_writable=True, own_queue_ids=[])
    assert appender.append(request(message(T, queue_id=None))) == layout.E_QUEUE_ELSEWHERE


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_a_share_comes_and_goes(build: Build) -> None:
    """A topic gets a share, further queues, loses the share, is removed and made again: the last call counts."""
    appender = made(build, None)
    assert appender.append(request(message(T, queue_id=None))) > 0
    for own, queue_count, wanted in (([1], 6, 1), ([1, 30], 31, 30), (None, 31, 7), ([8], 31, 8)):
        appender.table.put_topic(T, write_queue_count=queue_count, is_writable=True, own_queue_ids=own)
        assert appender.append(request(message(T, queue_id=wanted))) > 0
        is_refused = appender.append(request(message(T, queue_id=0))) == layout.E_QUEUE_ELSEWHERE
        assert is_refused == (own is not None)
    appender.table.remove_topic(T)
    appender.table.put_topic(T, write_queue_count=2, is_writable=True)
    assert appender.append(request(message(T, queue_id=0))) > 0


def test_shares_survive_the_return_of_space() -> None:
    """When the space of removed topics is freed, the other topics keep their shares."""
    table = TopicTable()
    table.put_topic(T, write_queue_count=9, is_writable=True, own_queue_ids=[3, 8])
    for number in range(20_000):
        table.put_topic(b"gone-%d" % number, write_queue_count=1, is_writable=True)
        table.remove_topic(b"gone-%d" % number)
    for build in BUILDS:
        appender = Appender(build)
        appender.table = table
        assert appender.append(request(message(T, queue_id=8))) > 0
        assert appender.append(request(message(T, queue_id=7))) == layout.E_QUEUE_ELSEWHERE
