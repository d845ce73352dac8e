# SPDX-License-Identifier: Apache-2.0
"""The work of `reput put`: sends messages to the producer, and prints the outcomes in order.

Imported only when there are messages to send, because it imports the client.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from reput_client import Durability, OutcomeUnknownError, Producer, ProducerOptions, ReputError, SendResult

from cli.commands.messages.sources import Arguments, Chunk, Lines, Source
from cli.connection.patience import LeaderPatience, Patience
from cli.exit_codes import CommandFailed, ExitCode, code_of
from cli.output.lines import error_line, print_json, warning_line, write
from cli.output.progress import Meter, progress
from cli.output.tables import print_fields
from libs.figures import counted

RETRIES = 6
"""With these the command waits about three seconds for a store that has answered before and is away; among several logs
of a store it waits longer for the next leader (`LeaderPatience`)."""
CHUNKS_MAX = 8
"""Chunks whose outcomes are awaited at once: enough to keep the connection busy, few enough to keep memory small."""
SHOWN_FAILURES_MAX = 10

Outcomes = Future[list[SendResult | ReputError]]


def source_of(bodies: Sequence[str] | None, file: Path | None, defaults: dict[str, Any]) -> Source:
    """Return the source of the messages. Raises OSError for a file that can't be opened."""
    if bodies:
        return Arguments(defaults, bodies)
    return Lines(defaults, file, are_json=file is not None)


def producer_options(durability_name: str, timeout_s: float, *, log_count: int) -> ProducerOptions:
    """Return the producer's options: retries for as long as a call may take. Of several logs another may lead."""
    kind = LeaderPatience if log_count > 1 else Patience
    retry = kind(retries=RETRIES, timeout_s=timeout_s)
    return ProducerOptions(durability=Durability[durability_name], retry=retry)


def send_all(producer: Producer, source: Source, durability_name: str, *, as_json: bool, delay_level: int = 0) -> bool:
    """Send all messages, and print the outcomes. Returns True if Ctrl-C ended it: the messages read so far are sent.

    `delay_level` is that of all messages, 0 if they have none or each has its own.
    Raises CommandFailed if a message was not stored, or can't be sent; the messages before it are stored.
    """
    tally = Tally(Durability[durability_name], as_json=as_json, delay_level=delay_level)
    sender = _Sender(producer, tally)
    is_interrupted, failure = False, None
    with progress("put", source.total, "messages") as meter:
        try:
            failure = _send(sender, source, meter)
        except KeyboardInterrupt:
            is_interrupted = True
        sender.settle(0, lambda: _show(meter, source, tally))
    if failure is not None and not tally.message_count:
        raise CommandFailed(*_parts(failure, "nothing was stored"), code=failure.code)
    tally.finish()
    if failure is not None:
        raise CommandFailed(
            *_parts(failure, f"{counted(tally.message_count, 'message')} before it stored"), code=failure.code
        )
    return is_interrupted


def _parts(failure: CommandFailed, note: str) -> tuple[str, str]:
    reason, _, text = str(failure).partition(": ")
    return reason, f"{text}; {note}"


def _send(sender: "_Sender", source: Source, meter: Meter) -> CommandFailed | None:
    """Send chunk by chunk. Returns the failure of the first message that can't be sent."""
    for chunk in source.chunks():
        failure = sender.send(chunk, source.place) or chunk.failure
        sender.settle(CHUNKS_MAX if chunk.messages else 0, lambda: _show(meter, source, sender.tally))
        if failure is not None:
            return failure
        if not chunk.messages:
            sys.stdout.flush()
    return None


def _show(meter: Meter, source: Source, tally: "Tally") -> None:
    is_of_messages = source.place == "message"
    meter.show(tally.message_count if is_of_messages else source.done, count=tally.message_count)


class _Sender:
    """Hands chunks to the producer and their outcomes to the tally, in order."""

    def __init__(self, producer: Producer, tally: "Tally") -> None:
        self.tally = tally
        self._producer = producer
        self._waiting: deque[Outcomes] = deque()

    def send(self, chunk: Chunk, place: str) -> CommandFailed | None:
        """Send a chunk, or its messages before a message that can't be sent. Returns the failure of that message."""
        self.tally.topics.update(message.topic for message in chunk.messages)
        try:
            self._waiting.append(self._producer.send_batch(chunk.messages))
        except (ValueError, TypeError):
            return self._send_singly(chunk, place)
        return None

    def settle(self, count_max: int, on_outcomes: Callable[[], None]) -> None:
        """Wait until at most so many chunks have no outcome."""
        while len(self._waiting) > count_max:
            outcomes = self._waiting[0].result()
            self._waiting.popleft()
            self.tally.add(outcomes)
            on_outcomes()

    def _send_singly(self, chunk: Chunk, place: str) -> CommandFailed | None:
        """Send one message after the other, to find the message that can't be sent."""
        for message, number in zip(chunk.messages, chunk.numbers, strict=True):
            try:
                self._waiting.append(self._producer.send_batch([message]))
            except (ValueError, TypeError) as error:
                return CommandFailed("BAD_MESSAGE", f"{place} {number}: {error}", code=ExitCode.USAGE)
        return None


class Tally:
    """Counts outcomes and prints them."""

    def __init__(self, asked: Durability, *, as_json: bool, delay_level: int) -> None:
        self.topics: set[str] = set()
        self._asked, self._as_json, self._delay_level = asked, as_json, delay_level
        self._stored_count = self._failed_count = self._unknown_count = 0
        self._last: SendResult | None = None
        self._lowest: Durability | None = None
        self._first_error: ReputError | None = None

    @property
    def message_count(self) -> int:
        """Number of messages that have an outcome."""
        return self._stored_count + self._failed_count

    def add(self, outcomes: list[SendResult | ReputError]) -> None:
        """Count and print the outcomes of the next messages."""
        for outcome in outcomes:
            if isinstance(outcome, SendResult):
                self._add_stored(outcome)
            else:
                self._add_failed(outcome)

    def _add_stored(self, result: SendResult) -> None:
        if self._as_json:
            print_json({"number": self.message_count, **_result_fields(result)})
        self._stored_count += 1
        self._last = result
        self._lowest = min(result.durability, self._lowest or result.durability)

    def _add_failed(self, error: ReputError) -> None:
        number = self.message_count
        self._failed_count += 1
        self._unknown_count += isinstance(error, OutcomeUnknownError)
        self._first_error = self._first_error or error
        if self._failed_count <= SHOWN_FAILURES_MAX:
            error_line(f"message {number}: {error}")
        if self._as_json:
            print_json({"number": number, "error": error.reason or error.code.name, "text": error.text})

    def finish(self) -> None:
        """Print the sum. Raises CommandFailed if a message was not stored."""
        if not self._as_json and self._stored_count == 1 and self._last is not None and not self._failed_count:
            print_fields(_result_fields(self._last), as_json=False)
        elif not self._as_json and (self._stored_count or not self._failed_count):
            place = f" in {next(iter(self.topics))}" if len(self.topics) == 1 else ""
            write(f"{counted(self._stored_count, 'message')} stored{place}\n")
        if self._lowest is not None and self._lowest < self._asked:
            warning_line(f"the store gave durability {self._lowest.name}, less than {self._asked.name}")
        if self._last is not None and self._delay_level > (level := self._last.queue_id + 1):
            warning_line(f"the store has {counted(level, 'delay level')}: level {self._delay_level} counts as {level}")
        if self._first_error is not None:
            total = counted(self.message_count, "message")
            text = f"{self._failed_count} of {total} not stored"
            if self._unknown_count:
                text += f", or not known to be ({self._unknown_count})"
            raise CommandFailed("NOT_STORED", text, code=code_of(self._first_error))


def _result_fields(result: SendResult) -> dict[str, object]:
    return {
        "queue_id": result.queue_id,
        "queue_offset": result.queue_offset,
        "physical_offset": result.physical_offset,
        "store_time_ms": result.store_time_ms,
        "durability": result.durability.name,
        "offset_message_id": result.offset_message_id,
        "unique_id": result.unique_id,
    }
