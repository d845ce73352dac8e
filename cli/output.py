# SPDX-License-Identifier: Apache-2.0
"""How commands speak: results on standard output, for people or as JSON; everything else on standard error.

With --json a list is one JSON object per line and a single thing is one object, so that every line parses by itself.
"""

import base64
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.message import Message as Protobuf
from google.protobuf.timestamp_pb2 import Timestamp
from reput_client import Message
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one object, or one object per line for lists.")]
PROGRESS_DELAY_S = 1.0
"""What takes less shows no progress bar."""

MESSAGE_FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_time", "store_time_ms", "born_time_ms", "tag",
    "keys", "unique_id", "offset_message_id", "properties", "born_host", "store_host", "flag", "sys_flag",
    "reconsume_times", "record_size_bytes",
)  # fmt: skip
_PLAUSIBLE_MS_MIN = 10**11
"""3 March 1973 as milliseconds, the year 5138 as seconds."""

errors = Console(stderr=True, highlight=False, soft_wrap=True)


def write(data: str | bytes) -> None:
    """Write to standard output."""
    if isinstance(data, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(data)


def prepare_output() -> None:
    """Make standard output and standard error accept every text, in UTF-8. What UTF-8 can't express is no error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started the command
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for the rest of the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def forget_output() -> None:
    """Drop what is still buffered for standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: object) -> None:
    """Print one JSON value on one line."""
    write(json.dumps(value, ensure_ascii=False) + "\n")


def print_rows(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print a list: JSON lines with all keys, or a table of the named columns."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    width = None if sys.stdout.isatty() else 10_000  # where it is no terminal tables are not cut
    Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width).print(table)


def print_fields(fields: Mapping[str, object], *, as_json: bool) -> None:
    """Print one thing: a JSON object, or a line per field."""
    if as_json:
        print_json(fields)
        return
    lines = dict(_flat("", fields))
    width = max(map(len, lines), default=0)
    for name, value in lines.items():
        write(f"{name.replace('_', ' '):<{width}}  {_cell(value)}\n")


def error_line(text: object) -> None:
    """Print `error: …` on standard error, in one line."""
    sys.stderr.write(f"error: {printable(' '.join(str(text).split()))}\n")


def warning_line(text: str) -> None:
    """Print `warning: …` on standard error."""
    sys.stderr.write(f"warning: {printable(text)}\n")


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: `1 message`, `2 messages`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def time_text(time_ms: int) -> str:
    """Return a moment in UTC, in milliseconds."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch: a whole number as it is, or ISO 8601, without a zone in local time.

    A number that would be a time of 1970 to 1973 is most likely in seconds, and refused.
    """
    if re.fullmatch(r"-?[0-9]+", text):
        time_ms = int(text)
        if 0 < time_ms < _PLAUSIBLE_MS_MIN:
            raise typer.BadParameter(f"{text} looks like seconds: give milliseconds ({text}000), or ISO 8601")
        return time_ms
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is neither ISO 8601 nor milliseconds since the epoch") from None
    return round(moment.timestamp() * 1000)


def message_fields(message: Message) -> dict[str, object]:
    """Return all of a message for JSON. The body is `body` if it is UTF-8 text, `body_base64` otherwise."""
    fields = {name: getattr(message, name) for name in MESSAGE_FIELDS}
    fields |= {"store_time": time_text(message.store_time_ms), "keys": list(message.keys)}
    text = body_text(message.body)
    if text is None:
        fields["body_base64"] = base64.b64encode(message.body).decode()
    else:
        fields["body"] = text
    if message.raw_properties:
        fields["raw_properties_base64"] = base64.b64encode(message.raw_properties).decode()
    return fields


def body_text(body: bytes) -> str | None:
    """Return the body as text, None if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def print_message(message: Message, *, as_json: bool, raw: bool = False) -> None:
    """Print a message as JSON, its body alone as it is, or a line about it and its body (hexadecimal if not text)."""
    if raw:
        write(message.body + b"\n")
    elif as_json:
        print_json(message_fields(message))
    else:
        place = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
        notes = [f"tag {message.tag}"] if message.tag else []
        notes += [f"keys {' '.join(message.keys)}"] if message.keys else []
        about = ", ".join([place, time_text(message.store_time_ms), *notes, message.offset_message_id])
        text = body_text(message.body)
        body = "\n  ".join(map(printable, text.split("\n"))) if text is not None else f"0x{message.body.hex()}"
        write(f"{printable(about)}\n  {body}\n")


@contextmanager
def progress_bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, on a terminal, after a second. Call what it yields with what is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    remaining = (TimeRemainingColumn(),) if total is not None else ()
    bar = Progress(*columns, *remaining, console=errors, transient=True, disable=not errors.is_terminal)
    task = bar.add_task(description, total=total)

    def show(done: int) -> None:
        if not bar.live.is_started and (bar.tasks[0].elapsed or 0) >= PROGRESS_DELAY_S:
            bar.start()
        bar.update(task, completed=done)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def printable(text: str) -> str:
    """Return one line that can't play tricks on a terminal: control characters, line ends too, are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _flat(prefix: str, fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield fields within fields, under both names."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name} ", value)
        else:
            yield f"{prefix}{name}", value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return printable(str(value))


def plain(message: Protobuf) -> dict[str, object]:
    """Return a message's fields by name: times as text, enums without their prefix, None for what is not set."""
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Protobuf, field: Any) -> object:
    value = getattr(message, field.name)
    if field.is_repeated:
        return [plain(item) if isinstance(item, Protobuf) else item for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        return field.enum_type.values_by_number[value].name.removeprefix(prefix)
    if isinstance(value, Timestamp):
        return time_text(value.ToMilliseconds())
    return plain(value) if isinstance(value, Protobuf) else value
