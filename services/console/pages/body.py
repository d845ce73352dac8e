# SPDX-License-Identifier: Apache-2.0
"""Body: the bytes of a message in the forms that people read: text, JSON, hexadecimal; inflated if compressed."""

import json
import re
from typing import Literal, get_args

from msgspec import Struct
from reput_client import BodyError, Message

Form = Literal["text", "json", "hex"]
FORMS: tuple[str, ...] = get_args(Form)
INFLATED_BYTES_MAX = 4 << 20
"""Largest inflated body that is shown: as large as the bodies that RocketMQ's clients send."""
SHOWN_CHARACTERS_MAX = 24_000
"""Characters of a body on a page, so that a page stays below 100 kB."""
JSON_BYTES_MAX = 256 << 10
"""Largest body that is laid out as JSON."""
HEX_BYTES_MAX = 4_096
HEX_LINE = 16
NUMBER_MARK, NUMBER_MARK_ESCAPED = "\ue000", "\\ue000"
"""A character for private use, which no JSON needs. JSON that has it is shown as text."""
MARKED_NUMBER = re.compile(rf'"{NUMBER_MARK}([^"]*)"')


class Body(Struct, frozen=True):
    """A body in one form."""

    is_hidden: bool
    """The settings hide bodies: only sizes are told."""
    stored_bytes: int
    size_bytes: int
    """Bytes after inflation; as they are stored if the body is not compressed, or can't be inflated."""
    is_compressed: bool
    error: str
    """Why the body can't be inflated; then the bytes are shown as they are stored."""
    charset: str
    """`UTF-8`, or empty if the bytes are no text."""
    form: Form
    forms: tuple[str, ...]
    """The forms that this body has."""
    shown: str
    is_cut: bool
    """More of the body is there than is shown."""


def body_of(message: Message, form: str, *, hides: bool) -> Body:
    """Return the body of a message in a form. A form that it does not have, or "", means the best form."""
    if hides:
        return _body(message, b"", "", "text", is_hidden=True)
    error, data = "", message.raw_body
    try:
        data = message.inflate(INFLATED_BYTES_MAX)
    except (BodyError, ModuleNotFoundError) as failure:
        error = getattr(failure, "text", str(failure))
    return _body(message, data, error, form)


def _body(message: Message, data: bytes, error: str, form: str, *, is_hidden: bool = False) -> Body:
    text, laid_out = _text(data), ""
    if text is not None and len(data) <= JSON_BYTES_MAX and not is_hidden:
        laid_out = _laid_out(text)
    forms = tuple(name for name in FORMS if name == "hex" or (laid_out if name == "json" else text is not None))
    chosen: Form = form if form in forms else "json" if laid_out else forms[0]  # type: ignore[assignment]
    shown, is_cut = _shown(data, text or "", laid_out, chosen)
    return Body(
        is_hidden=is_hidden,
        stored_bytes=len(message.raw_body),
        size_bytes=len(message.raw_body) if is_hidden else len(data),
        is_compressed=bool(message.sys_flag & 1),
        error=error,
        charset="UTF-8" if text is not None and not is_hidden else "",
        form=chosen,
        forms=() if is_hidden else forms,
        shown=shown,
        is_cut=is_cut,
    )


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _laid_out(text: str) -> str:
    """Return a JSON object or array with a line for each value, "" for another text. Numbers stay as they are written.

    A number becomes a string behind a mark while it is laid out: a float would round it.
    """
    if not text.lstrip().startswith(("{", "[")) or NUMBER_MARK in text or NUMBER_MARK_ESCAPED in text.lower():
        return ""
    try:
        value = json.loads(text, parse_float=_marked, parse_int=_marked, parse_constant=_marked)
        laid_out = json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""
    return MARKED_NUMBER.sub(r"\1", laid_out)


def _marked(number: str) -> str:
    return NUMBER_MARK + number


def _shown(data: bytes, text: str, laid_out: str, form: Form) -> tuple[str, bool]:
    if form == "hex":
        return hex_dump(data[:HEX_BYTES_MAX]), len(data) > HEX_BYTES_MAX
    whole = laid_out if form == "json" else text
    return whole[:SHOWN_CHARACTERS_MAX], len(whole) > SHOWN_CHARACTERS_MAX


def hex_dump(data: bytes) -> str:
    """Return lines of a position, 16 bytes in hexadecimal, and their printable ASCII."""
    lines = []
    for at in range(0, len(data), HEX_LINE):
        part = data[at : at + HEX_LINE]
        ascii_text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' ', 1):<{HEX_LINE * 3 - 1}}  {ascii_text}")
    return "\n".join(lines)
