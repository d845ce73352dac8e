# SPDX-License-Identifier: Apache-2.0
"""The questions of the demo. Reput and the source table answer each question, and the answers are compared.

Also a program, for services that run elsewhere, such as in containers:

    python -m demo.checks --commitlog HOST:PORT --indexer HOST:PORT --janitor HOST:PORT [--load] [--record FILE]

REPUT_CLIENT_TOKEN_FILE names the file with an operator's token, for the Janitor's dry run.
With --load it first loads the flights and writes the record of the load. Without it, it reads that record.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reput_client import Client, Message, NotFoundError, ReputError, connect
from reput_client import PullStatus as Status

from demo.comparisons import Comparisons
from demo.load import LoadFailed, LoadRecord, load, wait_indexed
from demo.report import Report
from demo.source import TOPIC, Source, read_source

PAGE_SIZE = 1024
PULL_COUNT = 4096
WINDOW_COUNT_MIN = 3_000
"""Minimum number of messages in the time range of the questions."""

DEFAULT_RECORD = Path(__file__).resolve().parent / "out" / "load.parquet"

Answer = tuple[bytes, str | None, tuple[str, ...], int, int, int, int]
"""Body, tag, keys, born time, store time, queue id, queue offset."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The client to ask, and the data for the expected answers."""

    client: Client
    source: Source
    record: LoadRecord
    comparisons: Comparisons

    def expected(self, rows: Iterable[int]) -> list[Answer]:
        """Returns the expected answers for these rows."""
        source, record = self.source, self.record
        return [
            (
                source.bodies[row], source.tags[row], source.keys(row), source.born_times_ms[row],
                record.store_times_ms[row], record.queue_ids[row], record.queue_offsets[row],
            )
            for row in rows
        ]  # fmt: skip

    def newest_first(self, rows: Iterable[int]) -> list[int]:
        """Returns the rows in the reverse order of the log."""
        return sorted(rows, key=lambda row: -self.record.physical_offsets[row])

    def by_queue(self, rows: Iterable[int]) -> list[int]:
        """Returns the rows by queue id and queue offset."""
        return sorted(rows, key=lambda row: (self.record.queue_ids[row], self.record.queue_offsets[row]))

    def stored_between(self, start_ms: int, end_ms: int) -> list[int]:
        """Returns the rows with a store time in [start_ms, end_ms)."""
        return [row for row, time_ms in enumerate(self.record.store_times_ms) if start_ms <= time_ms < end_ms]


def answers(messages: Iterable[Message]) -> list[Answer]:
    """Returns messages as answers."""
    return [
        (m.body, m.tag, m.keys, m.born_time_ms, m.store_time_ms, m.queue_id, m.queue_offset) for m in messages
    ]  # fmt: skip


def ask_all(asked: Asked) -> None:
    """Asks all questions in order."""
    ask_indexer(asked)
    ask_janitor(asked)


def ask_indexer(asked: Asked) -> None:
    """Asks all questions that an Indexer answers, in order."""
    for question in (ask_counts, ask_keys, ask_times, ask_queue_times, ask_queues, ask_ids):
        question(asked)


def ask_counts(asked: Asked) -> None:
    """Asks for the number of messages, in all and by queue."""
    queues = {queue.queue_id: queue.max_queue_offset for queue in asked.client.queues.list(TOPIC)}
    expected = dict(sorted(Counter(asked.record.queue_ids).items()))
    asked.comparisons.equal("messages in all queues", sum(queues.values()), len(asked.source))
    asked.comparisons.equal("messages by queue", queues, expected)


def ask_keys(asked: Asked) -> None:
    """Asks for the messages of a key, newest first."""
    source, aircraft = asked.source, asked.source.busiest_aircraft()
    unknown_aircraft = next(row for row, tail_number in enumerate(source.tail_numbers) if tail_number is None)
    for what, key in (
        (f"the year of aircraft {aircraft}, by key", aircraft),
        (f"all departures of flight {source.flight_keys[0]}, by key", source.flight_keys[0]),
        ("a flight without a tail number, by key", source.flight_keys[unknown_aircraft]),
        ("a key that nothing has", "N0NE"),
    ):
        started = time.monotonic()
        found = answers(asked.client.query.by_key(TOPIC, key, page_size=PAGE_SIZE))
        expected = asked.expected(asked.newest_first(source.rows_by_key.get(key, [])))
        asked.comparisons.equal(what, found, expected, counted(found, started))


def window_of(asked: Asked) -> tuple[int, int]:
    """Returns a range of store times in the middle of the load, with WINDOW_COUNT_MIN messages or more."""
    counts = sorted(Counter(asked.record.store_times_ms).items())
    middle = len(counts) // 2
    last, count = middle, counts[middle][1]
    while count < WINDOW_COUNT_MIN and last + 1 < len(counts):
        last += 1
        count += counts[last][1]
    return counts[middle][0], counts[last][0] + 1


def ask_times(asked: Asked) -> None:
    """Asks for the messages of a time range: of the topic, of a queue, of a key, and at the edges of the range."""
    start_ms, end_ms = window_of(asked)
    query = asked.client.query
    rows = asked.by_queue(asked.stored_between(start_ms, end_ms))
    started = time.monotonic()
    found = answers(query.by_time(TOPIC, start=start_ms, end=end_ms, page_size=PAGE_SIZE))
    asked.comparisons.equal(
        f"stored within {end_ms - start_ms} ms, by store time", found, asked.expected(rows), counted(found, started)
    )
    started = time.monotonic()
    found = answers(query.by_time(TOPIC, start=start_ms, end=end_ms, queue_id=2, page_size=PAGE_SIZE))
    expected = asked.expected(row for row in rows if asked.record.queue_ids[row] == 2)
    asked.comparisons.equal("the same of queue 2", found, expected, counted(found, started))
    found = answers(query.by_time(TOPIC, start=end_ms, end=end_ms))
    asked.comparisons.equal("an empty range of time", found, [])
    key = asked.source.flight_keys[rows[0]]
    found = answers(query.by_key(TOPIC, key, start=start_ms, end=end_ms, page_size=PAGE_SIZE))
    inside = [row for row in asked.newest_first(asked.source.rows_by_key[key]) if row in set(rows)]
    what = f"flight {key} in that range, by key and time"
    asked.comparisons.equal(what, found, asked.expected(inside), f"{len(found):,}")


def ask_queue_times(asked: Asked) -> None:
    """Asks for the queue offsets of a time: the first entry at or after it, and the last entry at or before it."""
    time_ms, _ = window_of(asked)
    for boundary in ("lower", "upper"):
        found, expected = [], []
        for queue_id in sorted(set(asked.record.queue_ids)):
            found.append(asked.client.queues.offset_by_time(TOPIC, queue_id, time_ms, boundary=boundary))
            rows = asked.by_queue(row for row, queue in enumerate(asked.record.queue_ids) if queue == queue_id)
            times = [asked.record.store_times_ms[row] for row in rows]
            if boundary == "lower":
                expected.append(sum(one < time_ms for one in times))
            else:
                expected.append(max(sum(one <= time_ms for one in times) - 1, 0))
        asked.comparisons.equal(f"queue offsets of a store time, {boundary} bound", found, expected)


def ask_queues(asked: Asked) -> None:
    """Asks for the messages of queues in queue order, of a whole queue and with tags."""
    ask_queue(asked, 1, "HA")
    ask_queue(asked, 2, "AS||F9")
    ask_queue(asked, 0, "*")


def ask_other_queues(asked: Asked) -> None:
    """Asks for all messages of the other queues. Together with `ask_queues`, every message is read at its place."""
    for queue_id in sorted(set(asked.record.queue_ids) - {0}):
        ask_queue(asked, queue_id, "*")


def ask_queue(asked: Asked, queue_id: int, tags: str) -> None:
    """Asks for the messages of a queue with these tags, in queue order."""
    started = time.monotonic()
    found = answers(pull_all(asked.client, queue_id, tags))
    names = set(tags.split("||"))
    rows = [
        row
        for row, queue in enumerate(asked.record.queue_ids)
        if queue == queue_id and (tags == "*" or asked.source.tags[row] in names)
    ]
    what = f"pull all of queue {queue_id}" if tags == "*" else f"pull queue {queue_id} with tag {tags}"
    asked.comparisons.equal(what, found, asked.expected(asked.by_queue(rows)), counted(found, started))


def pull_all(client: Client, queue_id: int, tags: str) -> Iterable[Message]:
    """Yields all messages of a queue with these tags, from its first entry to its end."""
    queue_offset, end = 0, 1
    while queue_offset < end:
        result = client.queues.pull(TOPIC, queue_id, queue_offset, count=PULL_COUNT, size_bytes=8 << 20, tags=tags)
        if result.status not in (Status.FOUND, Status.NO_MATCHED_MESSAGE):
            return
        yield from result.messages
        queue_offset, end = result.next_queue_offset, result.max_queue_offset


def ask_ids(asked: Asked) -> None:
    """Asks for messages by id: by offset message id, and by unique id."""
    record, query = asked.record, asked.client.query
    rows = [0, len(record) // 3, len(record) - 1]
    found = answers(query.by_id(record.offset_message_ids[row]) for row in rows)
    asked.comparisons.equal("messages by offset id", found, asked.expected(rows), record.offset_message_ids[rows[1]])
    found = answers(query.by_id(record.unique_ids[row], topic=TOPIC) for row in rows)
    asked.comparisons.equal("messages by unique id", found, asked.expected(rows), record.unique_ids[rows[1]])
    try:
        unknown = repr(query.by_id("0" * 32, topic=TOPIC))
    except NotFoundError:
        unknown = "not found"
    asked.comparisons.equal("an id that nothing has", unknown, "not found")


def ask_janitor(asked: Asked) -> None:
    """Asks for the segments that would expire. There are none: the load is younger than the retention.

    The dates of the flights have no effect.
    """
    admin = asked.client.admin
    before = [segment.base_physical_offset for segment in admin.segments()]
    run = admin.run_retention(dry_run=True)
    decisions = {decision.base_physical_offset: decision.reason for decision in run.decisions}
    asked.comparisons.equal("the Janitor's dry run decides on each segment", list(decisions), before)
    asked.comparisons.equal(
        "and would delete", [base for base, reason in decisions.items() if reason == "EXPIRED"], [],
        f"nothing ({', '.join(decisions.values())})",
    )  # fmt: skip
    asked.comparisons.equal("and deleted", [segment.base_physical_offset for segment in admin.segments()], before,
        "nothing")  # fmt: skip


def counted(found: list[Answer], started: float) -> str:
    """Returns the number of found answers, and the time of the query."""
    return f"{len(found):,} in {(time.monotonic() - started) * 1000:,.0f} ms"


def main() -> int:
    """Runs the program. Exit codes: 0 all equal, 1 a difference or a failure, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m demo.checks", description="Ask a store about the flights.")
    parser.add_argument("--commitlog", metavar="HOST:PORT", help="default: REPUT_COMMITLOG_TARGET, or 127.0.0.1:7101")
    parser.add_argument("--indexer", metavar="HOST:PORT", help="default: REPUT_INDEXER_TARGET, or 127.0.0.1:7102")
    parser.add_argument("--janitor", metavar="HOST:PORT", help="default: REPUT_JANITOR_TARGET, or 127.0.0.1:7103")
    parser.add_argument("--load", action="store_true", help="load the flights first; the topic must be empty")
    parser.add_argument("--record", type=Path, default=DEFAULT_RECORD, metavar="FILE", help="record of the load")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    chosen = parser.parse_args()
    if not chosen.load and not chosen.record.exists():
        parser.error(f"{chosen.record} does not exist; load with --load first")
    report = Report()
    comparisons = Comparisons(report.comparison)
    source = read_source(chosen.flights)
    try:
        with connect(commitlog=chosen.commitlog, indexer=chosen.indexer, janitor=chosen.janitor) as client:
            if chosen.load:
                with report.progress_bar("append", len(source)) as on_stored:
                    record, rates = load(client, source, on_stored)
                record.save(chosen.record)
                report.rates(rates)
            else:
                record = LoadRecord.read(chosen.record)
                wait_indexed(client, client.admin.commitlog_status().max_physical_offset)
            asked = Asked(client, source, record, comparisons)
            ask_all(asked)
            ask_other_queues(asked)
    except (ReputError, LoadFailed) as error:
        report.failure(str(error))
        return 1
    return report.verdict(comparisons)


if __name__ == "__main__":
    sys.exit(main())
