# SPDX-License-Identifier: Apache-2.0
"""Sources of the messages of `reput put`: arguments, lines, or JSON lines. Chunks are yielded as they are read.

Imported only when there are messages to send, because it imports the client.
"""

import base64
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

from reput_client import NewMessage

from cli.exit_codes import CommandFailed, ExitCode
from cli.input_lines import read_lines, standard_input

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
    "deliver_at": int,
    "delay_s": (int, float),
}
"""Keys of a JSON line and the types of their values; docs/cli.md lists the keys."""
DELAYS = {"delay_level", "deliver_at", "delay_s"}
"""If a line has any of these keys, the options of delay are not used for it."""

LONG_INTEGER = "integer string conversion"
"""Part of Python's error text for an integer with too many digits."""
BYTE_ORDER_MARK = "\ufeff"


class Chunk:
    """Messages that were read together, and the line number of each, from 1.

    A chunk without messages means that the next chunk may take a while. `failure` is the failure of the line behind the
    messages: no chunk comes after it.
    """

    def __init__(self, messages: list[NewMessage], numbers: list[int]) -> None:
        self.messages, self.numbers = messages, numbers
        self.failure: CommandFailed | None = None


class Source:
    """Messages to send. Counts the part that was read: `done` of `total`, in messages or in bytes."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self.defaults = defaults
        self.done = 0
        self.total: int | None = None
        self.place = "message"
        """The noun that the numbers of a chunk count."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the source."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all messages."""
        raise NotImplementedError


class Arguments(Source):
    """Bodies from the command line."""

    def __init__(self, defaults: Mapping[str, Any], bodies: Sequence[str]) -> None:
        super().__init__(defaults)
        self._bodies = bodies
        self.total = len(bodies)

    def chunks(self) -> Iterator[Chunk]:
        """See Source."""
        messages = [NewMessage(**{**self.defaults, "body": os.fsencode(body)}) for body in self._bodies]
        self.done = len(messages)
        yield Chunk(messages, list(range(1, len(messages) + 1)))


class Lines(Source):
    """Lines of a file or of standard input: bodies, or JSON objects with all fields of a message."""

    def __init__(self, defaults: Mapping[str, Any], file: Path | None, *, are_json: bool) -> None:
        super().__init__(defaults)
        self._are_json = are_json
        self._stack = ExitStack()
        self._stream: BinaryIO
        if file is not None and str(file) != "-":
            self._stream = self._stack.enter_context(file.open("rb"))
        else:
            self._stream = standard_input("give a file's name").buffer
        self.total = size_left(self._stream)
        self.place = "line"

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def chunks(self) -> Iterator[Chunk]:
        """See Source."""
        number = 0
        for lines in read_lines(self._stream):
            self.done += sum(map(len, lines)) + len(lines)
            if self._are_json:
                chunk = self._parsed(lines, number)
            else:
                messages = [NewMessage(**{**self.defaults, "body": body}) for body in lines]
                chunk = Chunk(messages, list(range(number + 1, number + len(lines) + 1)))
            number += len(lines)
            if chunk.messages or chunk.failure or not lines:
                yield chunk
            if chunk.failure:
                return

    def _parsed(self, lines: Iterable[bytes], number: int) -> Chunk:
        """Return the messages of JSON lines, without empty lines, up to the first line that is no message."""
        chunk = Chunk([], [])
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                chunk.messages.append(from_json(line, self.defaults))
            except (ValueError, TypeError, RecursionError) as error:
                chunk.failure = CommandFailed("BAD_LINE", f"line {number}: {said(error)}", code=ExitCode.USAGE)
                return chunk
            chunk.numbers.append(number)
        return chunk


def size_left(stream: BinaryIO) -> int | None:
    """Return the number of bytes of a file that are not read yet, None for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
        return status.st_size - stream.tell() if stat.S_ISREG(status.st_mode) else None
    except OSError:  # bytes in memory
        return None


def from_json(line: bytes, defaults: Mapping[str, Any]) -> NewMessage:
    """Return the message of a JSON line. Raises ValueError and TypeError, whose texts name the field.

    Raises RecursionError for a line that is nested too deeply.
    """
    fields = json.loads(line.decode())
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    for name, value in fields.items():
        if name not in FILE_FIELDS:
            raise ValueError(f"unknown key {name!r}; known are {', '.join(FILE_FIELDS)}")
        if isinstance(value, bool) or not isinstance(value, FILE_FIELDS[name]):  # type: ignore[arg-type]
            raise TypeError(f"{name!r} has a value of the wrong type")
    said = DELAYS & fields.keys()
    merged = {**{name: value for name, value in defaults.items() if not said or name not in DELAYS}, **fields}
    text, encoded = merged.pop("body", None), merged.pop("body_base64", None)
    if (text is None) == (encoded is None):
        raise ValueError("exactly one of 'body' and 'body_base64' is needed")
    merged["body"] = text.encode() if text is not None else base64.b64decode(encoded, validate=True)
    return NewMessage(**merged)


def said(error: Exception) -> str:
    """Return the fault of a line, in words for a user of the shell: the parser's text is for a Python programmer.

    The parser reads a line as a whole document, with a line number of its own.
    """
    if isinstance(error, RecursionError):
        return "arrays and objects are nested too deeply: a message needs two levels"
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 at byte {error.start + 1}: give a body that is no text as 'body_base64'"
    if isinstance(error, UnicodeEncodeError):
        return f"\\u{ord(error.object[error.start]):04x} is half of a surrogate pair, which UTF-8 can't express"
    if LONG_INTEGER in str(error):
        return f"an integer has more than {sys.get_int_max_str_digits()} digits: the largest is {2**63 - 1}"
    if isinstance(error, json.JSONDecodeError) and error.doc.startswith(BYTE_ORDER_MARK):
        return "begins with a byte order mark (U+FEFF): save it as UTF-8 without one"
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON at column {error.colno}: {error.msg[0].lower()}{error.msg[1:]}"
    return str(error)
