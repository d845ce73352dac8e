# SPDX-License-Identifier: Apache-2.0
"""TopicTable keeps the counters of every queue through growth, removal and changes of the queue count."""

import pytest

from libs.kernel import layout
from libs.kernel.append.topic_table import TopicTable
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import Appender, message, request


def test_ten_thousand_topics() -> None:
    """Each of 10,000 topics with four queues keeps its own counters."""
    table = TopicTable()
    for number in range(10_000):
        table.put_topic(b"topic-%d" % number, write_queue_count=4, is_writable=True)
        for queue_id in range(4):
            table.set_next_queue_offset(b"topic-%d" % number, queue_id, 4 * number + queue_id)
    assert [table.next_queue_offset(b"topic-%d" % (k // 4), k % 4) for k in range(40_000)] == list(range(40_000))
    assert len(table.counters()) == 39_999
    assert table.topic_count == 10_000


def test_counters_of_queues_above_the_queue_count() -> None:
    """A counter of any queue up to 65,535 is kept for unknown topics too, and used once the topic has that queue."""
    table = TopicTable()
    table.set_next_queue_offset(b"later", 65_535, 9)
    table.set_next_queue_offset(b"later", 5, 7)
    assert (table.next_queue_offset(b"later", 65_535), table.next_queue_offset(b"later", 6)) == (9, 0)
    table.put_topic(b"later", write_queue_count=6, is_writable=True)
    assert sorted(table.counters()) == [(b"later", 5, 7), (b"later", 65_535, 9)]
    table.set_next_queue_offset(b"later", 5, 8)
    table.put_topic(b"later", write_queue_count=65_535, is_writable=True)
    assert sorted(table.counters()) == [(b"later", 5, 8), (b"later", 65_535, 9)]


def test_fewer_queues_and_removal_keep_counters() -> None:
    """Counters survive a smaller queue count, the removal of the topic, and its return."""
    table = TopicTable()
    table.put_topic(b"t", write_queue_count=8, is_writable=True)
    table.set_next_queue_offset(b"t", 7, 3)
    table.put_topic(b"t", write_queue_count=2, is_writable=False)
    table.remove_topic(b"t")
    table.remove_topic(b"unknown")
    assert table.next_queue_offset(b"t", 7) == 3
    table.put_topic(b"t", write_queue_count=8, is_writable=True)
    assert (table.counters(), table.topic_count) == ([(b"t", 7, 3)], 1)


def test_topics_that_come_and_go_leave_nothing() -> None:
    """A topic with many queues that was created and deleted leaves no memory behind.

    The counters of queues that had a message stay.
    """
    table = TopicTable()
    table.put_topic(b"kept", write_queue_count=3, is_writable=True)
    table.set_next_queue_offset(b"kept", 2, 7)
    for number in range(20_000):
        name = b"wide-%d" % number
        table.put_topic(name, write_queue_count=1_024, is_writable=True)
        if number % 1_000 == 0:
            table.set_next_queue_offset(name, 1_000, number + 1)
        table.remove_topic(name)
    used = [(b"kept", 2, 7), *((b"wide-%d" % number, 1_000, number + 1) for number in range(0, 20_000, 1_000))]
    assert sorted(table.counters()) == sorted(used)
    assert table.queue_count == 3 + 20
    assert len(table.counter_values) < 10_000
    assert table.topic_count < 10_000
    assert len(table.names) < 200_000
    table.put_topic(b"wide-5000", write_queue_count=1_024, is_writable=True)
    assert table.next_queue_offset(b"wide-5000", 1_000) == 5_001
    assert table.queue_count == 3 + 19 + 1_024


def test_queues_of_all_topics_are_counted() -> None:
    """A topic counts with its queues, or with the queues that had a message if they are more."""
    table = TopicTable()
    table.put_topic(b"t", write_queue_count=8, is_writable=True)
    for queue_id in range(6):
        table.set_next_queue_offset(b"t", queue_id, 1)
    assert table.queue_count == 8
    table.put_topic(b"t", write_queue_count=2, is_writable=True)
    assert table.queue_count == 6
    table.set_next_queue_offset(b"t", 5, 0)
    table.set_next_queue_offset(b"t", 4, 9)
    assert table.queue_count == 5
    table.remove_topic(b"t")
    assert table.queue_count == 5


def test_frozen_counters_do_not_change() -> None:
    """A thread that iterates over frozen counters sees the values at the time of the call."""
    table = TopicTable()
    table.put_topic(b"t", write_queue_count=2, is_writable=True)
    table.set_next_queue_offset(b"t", 1, 5)
    table.set_next_queue_offset(b"t", 9, 6)
    frozen = table.frozen_counters()
    table.set_next_queue_offset(b"t", 1, 50)
    table.set_next_queue_offset(b"t", 9, 60)
    table.set_next_queue_offset(b"u", 0, 1)
    table.remove_topic(b"t")
    assert list(frozen) == [(b"t", 1, 5), (b"t", 9, 6)]


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_kernel_counts_on_from_the_table(build: Build) -> None:
    """append continues from counters that were set, also before the topic was known.

    It never appends to a queue above the queue count.
    """
    appender = Appender(build)
    appender.table.set_next_queue_offset(b"late", 2, 100)
    assert appender.append(request(message(b"late", queue_id=2))) == layout.E_TOPIC_UNKNOWN
    appender.table.put_topic(b"late", write_queue_count=3, is_writable=True)
    assert appender.append(request(message(b"late", queue_id=2), message(b"late", queue_id=2))) > 0
    assert appender.table.next_queue_offset(b"late", 2) == 102
    appender.table.put_topic(b"late", write_queue_count=2, is_writable=True)
    assert appender.append(request(message(b"late", queue_id=2))) == layout.E_QUEUE


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_kernel_finds_every_topic_of_a_crowded_table(build: Build) -> None:
    """Each of 300 topics is found by its name, next to names that share its slot."""
    appender = Appender(build)
    for number in range(300):
        appender.table.put_topic(b"t%d" % number, write_queue_count=1 + number % 3, is_writable=True)
    for start in range(0, 300, 60):
        assert appender.append(request(*[message(b"t%d" % k, queue_id=0) for k in range(start, start + 60)])) > 0
    assert sorted(appender.table.counters()) == sorted((b"t%d" % number, 0, 1) for number in range(300))


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_queues_that_a_batch_may_begin(build: Build) -> None:
    """A batch that begins more queues than the limit appends nothing, and the plan names the queues.

    Queues begin with their first message.
    """
    appender = Appender(build)
    appender.limits["begun_queue_count_max"] = 3
    appender.table.put_topic(b"t", write_queue_count=8, is_writable=True)
    four = request(*[message(b"t", queue_id=number) for number in range(4)])
    assert appender.append(four) == layout.E_QUEUES
    assert (appender.columns.error_value, appender.table.begun_count(appender.columns.places())) == (4, 4)
    assert appender.table.counters() == []
    same = request(*[message(b"t", queue_id=1) for _ in range(9)])
    assert appender.append(same) == layout.E_QUEUES
    assert appender.table.begun_count(appender.columns.places()) == 1
    assert appender.append(request(*[message(b"t", queue_id=number) for number in range(3)])) > 0
    assert appender.append(four) > 0
    assert appender.append(request(*[message(b"t", queue_id=None) for _ in range(4)])) == layout.E_QUEUES
    assert appender.table.begun_count(appender.columns.places()) == 0
    assert appender.append(request(*[message(b"t", queue_id=number) for number in range(4, 7)])) > 0
    assert appender.append(request(message(b"t", queue_id=7))) > 0
    assert appender.append(request(*[message(b"t", queue_id=None) for _ in range(20)])) > 0


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_queues_that_a_batch_began(build: Build) -> None:
    """The columns have the number of queues that got their first message, also of queues that the server chose."""
    appender = Appender(build)
    appender.table.put_topic(b"t", write_queue_count=3, is_writable=True)
    for queue_ids, began in (([1], 1), ([1, 2, 1], 1), ([None], 1), ([None, 0, 1, 2], 0)):
        assert appender.append(request(*[message(b"t", queue_id=queue_id) for queue_id in queue_ids])) > 0
        assert appender.columns.new_queue_count == began


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_queues_that_the_server_would_choose(build: Build) -> None:
    """Only queues that would get a message of the batch in turn, and had no message, count as begun.

    The other queues of the topic do not count.
    """
    appender = Appender(build)
    appender.limits["begun_queue_count_max"] = 0
    appender.table.put_topic(b"t", write_queue_count=4, is_writable=True)
    appender.table.set_next_queue_offset(b"t", 0, 5)
    appender.table.set_next_queue_offset(b"t", 2, 5)
    for count, would_begin in ((1, 0), (2, 1), (3, 1), (4, 2), (9, 2)):
        assert appender.append(request(*[message(b"t", queue_id=None) for _ in range(count)])) == layout.E_QUEUES
        assert appender.table.begun_count(appender.columns.places()) == would_begin
