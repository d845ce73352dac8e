# SPDX-License-Identifier: Apache-2.0
"""`reput put`: messages into the store, from arguments, from lines of standard input, or from a file of JSON lines."""

import base64
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from reput_client import (
    Durability,
    NewMessage,
    OutcomeUnknownError,
    Producer,
    ProducerOptions,
    ReputError,
    SendResult,
)

from cli.connection import Patience, client_of, options_of
from cli.exit_codes import CommandFailed, ExitCode, code_of
from cli.input_lines import read_lines
from cli.output import JsonOption, counted, error_line, print_fields, print_json, progress_bar, warning_line, write

CHUNKS_MAX = 8
"""Chunks whose outcomes are awaited at once: enough to keep the line busy, few enough to keep memory small."""
RETRIES = 6
"""A store that nobody serves for about three seconds is waited for."""
SHOWN_FAILURES_MAX = 10
FILE_FIELDS = {
    "topic": str,
    "body": str,
    "body_base64": str,
    "tag": str,
    "keys": (str, list),
    "properties": dict,
    "queue_id": int,
    "sharding_key": str,
    "unique_id": str,
    "flag": int,
    "born_time_ms": int,
    "delay_level": int,
}
"""Keys of a JSON line and what their values must be; docs/cli.md lists them."""


class DurabilityName(StrEnum):
    """Levels by the names that people type."""

    DEFAULT = "default"
    MEMORY = "memory"
    LOCAL_DISK = "local-disk"
    REPLICATED = "replicated"


def put(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(help="Bodies. [default: one per line of standard input]")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="JSON lines, one message each; '-' is standard input.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Tag.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="A key; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Queue. [default: the store chooses]")] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Messages with equal ones share a queue.")] = None,
    delay_level: Annotated[
        int,
        typer.Option(min=0, help="Deliver after this one of the store's delays: 1 is 1 s, 18 is 2 h. 0 is no delay."),
    ] = 0,
    durability: Annotated[DurabilityName, typer.Option(help="What to wait for.")] = DurabilityName.DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Append messages. Options give what a message does not say itself. With --json one result per message is printed.

    Exit code 5 (or that of the first failure) if a message was not stored; the others are stored all the same.
    """
    defaults: dict[str, Any] = {
        "topic": topic,
        "tag": tag,
        "keys": key or [],
        "properties": dict(map(_property, properties or [])),
        "queue_id": queue,
        "sharding_key": sharding_key,
        "delay_level": delay_level,
    }
    if file is not None and bodies:
        raise typer.BadParameter("give bodies or --file, not both")
    if file is not None:
        chunks = _from_json_lines(_lines(file), defaults)
    else:
        contents = [[os.fsencode(body) for body in bodies]] if bodies else read_lines(sys.stdin.buffer)
        chunks = ([NewMessage(**{**defaults, "body": body}) for body in some] for some in contents)
    retry = Patience(retries=RETRIES, timeout_s=options_of(context).timeout_s)
    options = ProducerOptions(durability=Durability[durability.name], retry=retry)
    total = len(bodies) if bodies else None
    tally = _Tally(Durability[durability.name], as_json=as_json)
    with client_of(context) as client, client.producer(options) as producer, progress_bar("put", total) as show:
        is_interrupted = _send(producer, chunks, tally, show)
    tally.finish()
    if is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _send(producer: Producer, chunks: Iterable[list[NewMessage]], tally: "_Tally", show: Callable[[int], None]) -> bool:
    """Send all messages and count their outcomes, in order. Returns True if Ctrl-C ended it: what was read is sent.

    An empty chunk says that the next chunk may take a while.
    """
    waiting: deque[Future[list[SendResult | ReputError]]] = deque()

    def settle(count_max: int) -> None:
        while len(waiting) > count_max:
            outcomes = waiting[0].result()
            waiting.popleft()
            tally.add(outcomes)
            show(tally.message_count)

    is_interrupted = False
    try:
        for chunk in chunks:
            tally.topics.update(message.topic for message in chunk)
            try:
                waiting.append(producer.send_batch(chunk))
            except (ValueError, TypeError) as error:
                raise CommandFailed("BAD_MESSAGE", str(error), code=ExitCode.USAGE) from error
            settle(CHUNKS_MAX if chunk else 0)
            if not chunk:
                sys.stdout.flush()
    except KeyboardInterrupt:
        is_interrupted = True
    settle(0)
    return is_interrupted


class _Tally:
    """Counts outcomes and prints them."""

    def __init__(self, asked: Durability, *, as_json: bool) -> None:
        self.topics: set[str] = set()
        self._asked, self._as_json = asked, as_json
        self._stored_count = self._failed_count = self._unknown_count = 0
        self._last: SendResult | None = None
        self._lowest: Durability | None = None
        self._first_error: ReputError | None = None

    @property
    def message_count(self) -> int:
        """How many messages have an outcome."""
        return self._stored_count + self._failed_count

    def add(self, outcomes: list[SendResult | ReputError]) -> None:
        for outcome in outcomes:
            number = self.message_count
            if isinstance(outcome, SendResult):
                self._stored_count += 1
                self._last = outcome
                self._lowest = min(outcome.durability, self._lowest or outcome.durability)
                if self._as_json:
                    print_json({"number": number, **_result_fields(outcome)})
            else:
                self._failed_count += 1
                self._unknown_count += isinstance(outcome, OutcomeUnknownError)
                self._first_error = self._first_error or outcome
                if self._failed_count <= SHOWN_FAILURES_MAX:
                    error_line(f"message {number}: {outcome}")
                if self._as_json:
                    print_json({"number": number, "error": outcome.reason or outcome.code.name, "text": outcome.text})

    def finish(self) -> None:
        """Print the sum. Raises CommandFailed if a message was not stored."""
        if not self._as_json and self._stored_count == 1 and self._last is not None and not self._failed_count:
            print_fields(_result_fields(self._last), as_json=False)
        elif not self._as_json and (self._stored_count or not self._failed_count):
            place = f" in {next(iter(self.topics))}" if len(self.topics) == 1 else ""
            write(f"{counted(self._stored_count, 'message')} stored{place}\n")
        if self._lowest is not None and self._lowest < self._asked:
            warning_line(f"the store gave durability {self._lowest.name}, less than {self._asked.name}")
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


def _property(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def _lines(file: Path) -> Iterator[list[bytes]]:
    if str(file) == "-":
        yield from read_lines(sys.stdin.buffer)
        return
    with file.open("rb") as stream:
        yield from read_lines(stream)


def _from_json_lines(chunks: Iterable[list[bytes]], defaults: dict[str, Any]) -> Iterator[list[NewMessage]]:
    """Yield the messages of a file, without its empty lines. Raises CommandFailed with the line's number."""
    number = 0
    for lines in chunks:
        messages = []
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                messages.append(_from_json(json.loads(line.decode()), defaults))
            except (ValueError, TypeError) as error:
                raise CommandFailed("BAD_LINE", f"line {number}: {error}", code=ExitCode.USAGE) from error
        if messages or not lines:
            yield messages


def _from_json(fields: Any, defaults: dict[str, Any]) -> NewMessage:
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    for name, value in fields.items():
        if name not in FILE_FIELDS:
            raise ValueError(f"unknown key {name!r}; known are {', '.join(FILE_FIELDS)}")
        if isinstance(value, bool) or not isinstance(value, FILE_FIELDS[name]):  # type: ignore[arg-type]
            raise TypeError(f"{name!r} has a value of the wrong type")
    merged = {**defaults, **fields}
    text, encoded = merged.pop("body", None), merged.pop("body_base64", None)
    if (text is None) == (encoded is None):
        raise ValueError("exactly one of 'body' and 'body_base64' is needed")
    merged["body"] = text.encode() if text is not None else base64.b64decode(encoded, validate=True)
    return NewMessage(**merged)
