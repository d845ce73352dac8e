# SPDX-License-Identifier: Apache-2.0
"""The page of `reput status`: the verdict, and a block for each subject.

Pure except for colours: states in, lines out.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from reput.commitlog.v1.log_service_pb2 import GetStatusResponse

from cli.commands.state.beside import beside_lines
from cli.commands.state.standing import level_lines, still_lines
from cli.commands.state.states import States
from cli.output.lines import printable, styled
from cli.output.moments import short_text
from cli.output.wrapping import VALUE_WIDTH_MIN, wrapped
from libs.figures import duration_text, many, rate_text, size_rate_text, size_text
from libs.service_names import SERVICES
from libs.verdict import Trouble, verdict_of

LABEL_WIDTH = 11
DISKS_MAX = 4
REPLICAS_MAX = 4
TROUBLES_MAX = 4
HISTORY_S_MIN = 600.0
"""The growth of a log that reaches back less can't be estimated."""
TOGETHER_S = 60.0
"""Services that start within this time are shown as started together."""
HOUR_S = 3600.0
SOON_S = 365 * 86_400.0
"""A later event is not worth a forecast."""


class Rates(NamedTuple):
    """Changes per second between two looks."""

    messages: float
    appended_bytes: float
    indexed_bytes: float

    @classmethod
    def between(cls, before: States | None, after: States) -> "Rates | None":
        """Return the rates, None if they are not known: a service was away, or has started again."""
        if before is None or before.log is None or before.index is None or after.log is None or after.index is None:
            return None
        seconds = after.time_s - before.time_s
        if seconds <= 0 or before.log.start_time != after.log.start_time:
            return None
        return cls(
            (after.log.appended_message_count - before.log.appended_message_count) / seconds,
            (after.log.max_physical_offset - before.log.max_physical_offset) / seconds,
            (after.index.indexed_physical_offset - before.index.indexed_physical_offset) / seconds,
        )


def page_lines(states: States, troubles: list[Trouble], rates: Rates | None, width: int) -> Iterator[str]:
    """Yield the page, line by line, at most `width` wide."""
    yield from verdict_lines(troubles, width)
    yield ""
    yield from labelled_lines(_blocks(states, rates), width)


def labelled_lines(blocks: Iterable[tuple[str, Iterable[str]]], width: int) -> Iterator[str]:
    """Yield each label, and its sentences beside it."""
    for label, texts in blocks:
        for number, text in enumerate(texts):
            name = "" if number else label
            lead = (styled(name, bold=True) if name else "") + " " * (LABEL_WIDTH - len(name))
            first, *more = wrapped(printable(text), max(width - LABEL_WIDTH, VALUE_WIDTH_MIN))
            yield lead + first
            yield from (" " * LABEL_WIDTH + line for line in more)


def verdict_lines(troubles: list[Trouble], width: int) -> Iterator[str]:
    """Yield the verdict in a single line, and the worst troubles below it."""
    bad = [trouble for trouble in troubles if not trouble.is_note]
    yield styled(verdict_of(troubles), fg="red" if bad else "green", bold=True)
    for trouble in troubles[:TROUBLES_MAX]:
        text = f"{'note: ' if trouble.is_note else ''}{trouble.text}{f'; {trouble.action}' if trouble.action else ''}"
        for line in wrapped(printable(text), width, first="- ", indent="  "):
            yield styled(line, fg=None if trouble.is_note else "red")
    if len(troubles) > TROUBLES_MAX:
        yield f"- and {len(troubles) - TROUBLES_MAX} more: reput status --json"


def _blocks(states: States, rates: Rates | None) -> Iterator[tuple[str, list[str]]]:
    """Yield labels and their sentences."""
    if states.targets:
        yield "asked", [", ".join(f"the {SERVICES[name]} at {target}" for name, target in states.targets.items())]
    if states.log is not None and not states.is_recovering:
        yield "log", list(_log(states, states.log, rates))
    if states.index is not None:
        yield "index", list(_index(states, rates))
    if states.log is not None and (disks := list(disk_lines(states, states.log))):
        yield "disk", disks
    if states.log is not None and (replicas := list(_replicas(states.log))):
        yield "replicas", replicas
    if states.retention is not None:
        yield "retention", list(_retention(states))
    if beside := list(beside_lines(states.beside)):
        yield "beside", beside
    if delayed := list(level_lines(states.delay_levels)):
        yield "delayed", delayed
    if still := list(still_lines(states.still)):
        yield "groups", still
    if running := list(_running(states)):
        yield "up for", running


def _log(states: States, log: GetStatusResponse, rates: Rates | None) -> Iterator[str]:
    size = log.max_physical_offset - log.min_physical_offset
    text = f"{size_text(size)} in {many(log.segment_count, 'segment')}"
    if states.oldest_time_ms:
        back = duration_text(states.time_s - states.oldest_time_ms / 1000)
        text += f"; reaches back {back}, to {_moment(states, states.oldest_time_ms)}"
    yield text
    if rates is not None:
        yield f"{rate_text(rates.messages, 'messages')}, {size_rate_text(rates.appended_bytes)}"
    taken = many(log.appended_message_count, "message")
    yield f"{many(log.topic_count, 'topic')}; {taken} taken since the start"
    if unsynced := log.max_physical_offset - log.flushed_physical_offset:
        yield f"{size_text(unsynced)} not synced yet"


def _index(states: States, rates: Rates | None) -> Iterator[str]:
    index = states.index
    assert index is not None
    end = states.log.confirmed_physical_offset if states.log is not None else index.confirmed_physical_offset
    behind = max(end - index.indexed_physical_offset, 0)
    what = f"{many(index.queue_count, 'queue')}, {many(index.index_entry_count, 'key')}"
    if not behind:
        yield f"up to date; {what}"
    else:
        yield f"{size_text(behind)} behind{_age(states)}{_time_left(behind, rates)}; {what}"


def _age(states: States) -> str:
    assert states.index is not None
    if not states.index.HasField("last_store_time"):
        return ""
    seconds = states.time_s - states.index.last_store_time.ToMilliseconds() / 1000
    return f", the last message in it was stored {duration_text(seconds)} ago" if seconds > 0 else ""


def _time_left(behind: int, rates: Rates | None) -> str:
    if rates is None:
        return ""
    gained = rates.indexed_bytes - rates.appended_bytes
    return f", there in {duration_text(behind / gained)}" if gained > 0 else ", and falls back"


def disk_lines(states: States, log: GetStatusResponse) -> Iterator[str]:
    """Yield a sentence for each disk, and with a policy the begin of retention for lack of space."""
    directories = list(log.log_directories)
    for one in directories[:DISKS_MAX]:
        state = ", read only" if one.is_read_only else ", full" if one.is_full else ""
        yield f"{_disk(one.disk_used_percent, one.disk_free_bytes, one.disk_total_bytes)}{state}: {one.path}"
    if len(directories) > DISKS_MAX:
        yield f"and {len(directories) - DISKS_MAX} directories more: reput janitor status"
    if not directories and log.disk_total_bytes:
        yield _disk(log.disk_used_percent, log.disk_free_bytes, log.disk_total_bytes)
    index = states.index
    is_elsewhere = index is not None and index.disk_total_bytes not in {one.disk_total_bytes for one in directories}
    if index is not None and index.disk_total_bytes and is_elsewhere and directories:
        yield f"{_disk(index.disk_used_percent, index.disk_free_bytes, index.disk_total_bytes)}: the indexes"
    if states.policy is not None and log.disk_total_bytes:
        yield _forecast(states, log)


def _disk(used_percent: int, free_bytes: int, total_bytes: int) -> str:
    return f"{used_percent} % used, {size_text(free_bytes)} free of {size_text(total_bytes)}"


def _forecast(states: States, log: GetStatusResponse) -> str:
    """Return the begin of retention for lack of space, as far as the log's own history shows it."""
    assert states.policy is not None
    limit = states.policy.disk_max_used_percent
    begins = f"above {limit} % expired segments go at once"
    room = log.disk_free_bytes - log.disk_total_bytes * (100 - limit) / 100
    reach_s = states.time_s - states.oldest_time_ms / 1000
    size = log.max_physical_offset - log.min_physical_offset
    if not states.oldest_time_ms or reach_s < HISTORY_S_MIN or not size or room <= 0:
        return begins
    pace = size / reach_s
    growth = f"the log grows {size_text(pace * HOUR_S)} an hour"
    if pace * states.policy.retention_hours * HOUR_S - size < room or room / pace > SOON_S:
        return f"{begins}; {growth}, and {states.policy.retention_hours} h of it fit"
    return f"{begins}; {growth}, and gets there in {duration_text(room / pace)}"


def _replicas(log: GetStatusResponse) -> Iterator[str]:
    if log.HasField("following"):
        behind = max(log.following.leader_max_physical_offset - log.max_physical_offset, 0)
        sync = "in sync" if log.following.is_in_sync else "not in sync"
        yield f"this log follows {log.following.leader_target}, {sync}, {size_text(behind)} behind"
        return
    for replica in list(log.replicas)[:REPLICAS_MAX]:
        behind = max(log.max_physical_offset - replica.received_physical_offset, 0)
        yield f"{replica.replica_id}: {'in sync' if replica.is_in_sync else 'not in sync'}, {size_text(behind)} behind"
    connected = {replica.replica_id for replica in log.replicas}
    yield from (f"{name}: not connected" for name in log.in_sync_replica_ids[1:] if name not in connected)
    if len(log.replicas) > REPLICAS_MAX:
        yield f"and {len(log.replicas) - REPLICAS_MAX} more: reput replicas"


def _retention(states: States) -> Iterator[str]:
    retention, policy, run = states.retention, states.policy, states.last_run
    assert retention is not None
    if policy is not None:
        hours = ", ".join(f"{hour:02}:00" for hour in policy.delete_hours)
        kept = f"keeps {policy.retention_hours} h"
        kept += f" and at most {size_text(policy.retention_bytes)}" if policy.retention_bytes else ""
        yield f"{kept}, deletes at {hours} ({policy.time_zone})"
    if retention.topic_count:
        owner = "its" if retention.topic_count == 1 else "their"
        yield f"{many(retention.topic_count, 'topic')} with a retention of {owner} own: reput janitor status"
    if retention.is_running:
        yield f"a run deletes segment {retention.run_deleted_segment_count} of {retention.run_planned_segment_count}"
    if run is not None:
        what = f"{many(run.deleted_segment_count, 'segment')}, {size_text(run.freed_bytes)}"
        yield f"last deleted {_moment(states, run.time.ToMilliseconds())} ({run.trigger}): {what}"
    elif retention.HasField("last_check_time"):
        yield f"nothing deleted yet; last looked {_moment(states, retention.last_check_time.ToMilliseconds())}"


def _running(states: States) -> Iterator[str]:
    """Yield the services' running time and version: in a single sentence if they started together."""
    known = {"CommitLog": states.log, "Indexer": states.index, "Janitor": states.retention}
    up = {name: state for name, state in known.items() if state is not None}
    if not up:
        return
    seconds = {name: states.time_s - state.start_time.ToMilliseconds() / 1000 for name, state in up.items()}
    versions = {state.version or "?" for state in up.values()}
    if len(versions) == 1 and max(seconds.values()) - min(seconds.values()) < TOGETHER_S:
        yield f"{duration_text(min(seconds.values()))}: {', '.join(up)}, version {versions.pop()}"
    else:
        yield from (
            f"{duration_text(seconds[name])}: {name}, version {state.version or '?'}" for name, state in up.items()
        )


def _moment(states: States, time_ms: int) -> str:
    return short_text(time_ms, now=datetime.fromtimestamp(states.time_s, UTC))
