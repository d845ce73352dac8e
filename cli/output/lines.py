# SPDX-License-Identifier: Apache-2.0
"""Lines on standard output and standard error, and JSON."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON: one object, or one object per line for lists.")]


def write(data: str | bytes) -> None:
    """Write to standard output."""
    if isinstance(data, bytes):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(data)


def prepare_output() -> None:
    """Make standard output and standard error accept every text, in UTF-8, with escapes if UTF-8 can't express it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller of the command
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for the rest of the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def forget_output() -> None:
    """Drop the bytes that are still buffered for standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: object) -> None:
    """Print a JSON value on a single line."""
    write(json.dumps(value, ensure_ascii=False) + "\n")


def error_line(text: object) -> None:
    """Print `error: …` on standard error, in a single line."""
    sys.stderr.write(f"error: {printable(' '.join(str(text).split()))}\n")


def warning_line(text: str) -> None:
    """Print `warning: …` on standard error."""
    sys.stderr.write(f"warning: {printable(text)}\n")


def note_line(text: str) -> None:
    """Print a line for the user at a terminal, on standard error. Scripts do not get it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{printable(text)}\n")


def printable(text: str) -> str:
    """Return a single line that is safe for a terminal: control characters, line ends too, are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def styled(text: str, **style: object) -> str:
    """Return the text with colour or weight if standard output is a terminal, else the text alone."""
    is_plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if is_plain else typer.style(text, **style)  # type: ignore[arg-type]
