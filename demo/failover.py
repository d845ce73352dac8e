# SPDX-License-Identifier: Apache-2.0
"""The leader's death: a writer appends to three replicas, the leader is killed, and the writer continues.

Invariant: the flights are numbered batches of a single writer, which repeats each batch without an answer. So all three
replicas must have each flight once, in its order, under any leader. The writer does not get the places of the flights:
the demo reads them afterwards.
"""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from reput_client import Client, Durability, NewMessage

from demo.checks import Asked, ask_indexer, pull_all
from demo.comparisons import Comparisons
from demo.load import QUEUE_COUNT, LoadFailed, LoadRecord, make_topic, message, wait_indexed
from demo.members import NAMES, Members
from demo.report import Report
from demo.source import Source

FLIGHT_COUNT = 100_000
"""Flights of this chapter: enough for a death in the middle."""
BATCH_COUNT = 500
WINDOW_BYTES = 1 << 20
"""A small window, so that the writer notices a missing leader at once."""


@dataclass(slots=True)
class Heard:
    """The acknowledged batches of the writer, and the longest time without an acknowledgement."""

    on_stored: Callable[[int], None]
    batch_count: int = 0
    longest_pause_s: float = 0.0
    _last_s: float = field(default_factory=time.monotonic)

    def note(self, batch_count: int) -> None:
        """Records the number of batches that are acknowledged by now."""
        if batch_count > self.batch_count:
            now_s = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s)
            self.on_stored((batch_count - self.batch_count) * BATCH_COUNT)
            self.batch_count, self._last_s = batch_count, now_s


def run(source: Source, comparisons: Comparisons, directory: Path, report: Report) -> None:
    """Runs the chapter over new stores below a directory. Raises ServiceFailed, LoadFailed and ReputError."""
    source = source.first(FLIGHT_COUNT)
    members = Members(directory, lambda command: report.line(f"  {command}"))
    with members:
        dead = members.wait_leader(NAMES, in_sync_count=len(NAMES))
        report.line(f"  serving: {', '.join(NAMES)}, each a CommitLog with its Indexer, of which {dead} leads")
        report.line(f"  {members.succession.words}")
        with report.progress_bar("append", len(source)) as on_stored:
            leader = load(members, dead, source, on_stored, report)
        with report.waiting(f"starting {dead} again"):
            members.start_again(dead)
            members.wait_leader([leader], in_sync_count=len(NAMES))
        report.line(f"  {dead} is back: it follows {leader} and is in sync")
        ask_members(members, leader, source, comparisons, report)
    compare_logs(members, leader, comparisons, report)


def load(members: Members, dead: str, source: Source, on_stored: Callable[[int], None], report: Report) -> str:
    """Appends all rows, while the leader dies. Returns the new leader."""
    client = members.client(*NAMES)
    make_topic(client)
    starts = range(0, len(source), BATCH_COUNT)
    started, heard = time.monotonic(), Heard(on_stored)
    with (
        ThreadPoolExecutor(1) as pool,
        client.writer("demo", durability=Durability.REPLICATED, window_bytes=WINDOW_BYTES) as writer,
    ):
        for start in starts:
            if start == starts[len(starts) // 2]:
                change = pool.submit(replace_leader, members, dead, heard, report)
            writer.append([numbered(source, row) for row in range(start, min(start + BATCH_COUNT, len(source)))])
            heard.note(writer.next_sequence)
        written = writer.flush()
        heard.note(writer.next_sequence)
        leader = change.result()
    seconds = time.monotonic() - started
    report.line(
        f"  the writer went on: {written.message_count:,} messages acknowledged as REPLICATED in {seconds:.1f} s, "
        f"of which {heard.longest_pause_s:.1f} s were a pause"
    )
    report.line(f"  {written.repeated_message_count:,} were sent twice, as their answers died with {dead}")
    return leader


def replace_leader(members: Members, leader: str, heard: Heard, report: Report) -> str:
    """Kills the leader. Returns the new leader."""
    report.line(f"  kill -9 of {leader}, after {heard.batch_count * BATCH_COUNT:,} acknowledged messages")
    died = time.monotonic()
    members.kill(leader)
    successor = members.succession.succeed(members, [name for name in NAMES if name != leader])
    report.line(f"  {successor} leads, {time.monotonic() - died:.1f} s later")
    return successor


def numbered(source: Source, row: int) -> NewMessage:
    """Returns a flight as a message with its queue and its unique id, so that each repetition is the same message."""
    return replace(message(source, row), queue_id=row % QUEUE_COUNT, unique_id=f"{row + 1:032X}")


def ask_members(members: Members, leader: str, source: Source, comparisons: Comparisons, report: Report) -> None:
    """Asks each Indexer all questions, the leader's Indexer first."""
    end: int = members.client(leader).admin.commitlog_status().max_physical_offset
    wait_indexed(members.client(leader), end)
    record = read_record(members.client(leader), source, comparisons)
    ask_indexer(Asked(members.client(leader), source, record, comparisons))
    for name in sorted(set(NAMES) - {leader}):
        wait_indexed(members.client(name), end)
        with report.waiting(f"asking {name}"), comparisons.counted(report.difference) as tally:
            ask_indexer(Asked(members.client(name), source, record, comparisons))
        report.line(f"  {name}: {tally} answers are the same")


def read_record(client: Client, source: Source, comparisons: Comparisons) -> LoadRecord:
    """Reads the places of all rows. Raises LoadFailed unless each row is stored once, in its order."""
    stored = [message for queue_id in range(QUEUE_COUNT) for message in pull_all(client, queue_id, "*")]
    rows = [source.row_by_body.get(message.body, -1) for message in stored]
    expected = [row for queue_id in range(QUEUE_COUNT) for row in range(queue_id, len(source), QUEUE_COUNT)]
    comparisons.equal("flights that are stored, each once and in its order", rows, expected, f"{len(rows):,}")
    if rows != expected:
        raise LoadFailed("the new leader does not have what was acknowledged")
    places = [message for _, message in sorted(zip(rows, stored, strict=True), key=lambda pair: pair[0])]
    return LoadRecord(
        physical_offsets=[place.physical_offset for place in places],
        queue_ids=[place.queue_id for place in places],
        queue_offsets=[place.queue_offset for place in places],
        store_times_ms=[place.store_time_ms for place in places],
        unique_ids=[place.unique_id or "" for place in places],
        offset_message_ids=[place.offset_message_id for place in places],
    )


def compare_logs(members: Members, leader: str, comparisons: Comparisons, report: Report) -> None:
    """Compares the stopped logs byte by byte, and checks all of the other copies. Raises ServiceFailed for a fault."""
    for name in sorted(set(NAMES) - {leader}):
        lines = members.reput("verify", name, "--against", leader).splitlines()
        report.line(f"    {lines[-1]}")
        found = re.search(r"([\d.,]+ [KMGT]?i?B) compared", lines[-1])
        compared = found[1] if found else "none"
        differences = [line for line in lines if "LOG_DIFFERS" in line or "LOG_NOT_COMPARED" in line]
        expected = [] if found else ["something to compare"]
        comparisons.equal(f"{name}'s log, byte by byte with {leader}'s", differences, expected, compared)
