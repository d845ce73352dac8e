# SPDX-License-Identifier: Apache-2.0
"""Body: the bytes of a message in the forms that people read: text, JSON, hexadecimal; inflated if compressed."""

from typing import Literal, get_args

from msgspec import Struct
from reput_client import BodyError, Message

from services.console.pages.mask import Mask, laid_out

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


class Body(Struct, frozen=True):
    """A body in a form."""

    is_hidden: bool
    """Only sizes are told: the settings hide bodies, or mask fields, and the body is no JSON."""
    is_masked: bool
    """The settings mask fields: their values are replaced, and JSON is the only form."""
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
    start: int
    """Where `shown` begins: a number of characters, of bytes for hexadecimal."""
    length: int
    """Characters of the whole body in this form, its bytes for hexadecimal."""
    is_cut: bool
    """More of the body follows behind `shown`."""


def body_of(message: Message, form: str, mask: Mask, *, start: int = 0) -> Body:
    """Return the body of a message in a form, from a place on. A form that it lacks, or "", gives its best form."""
    if mask.hides_bodies:
        return _body(message, b"", "", "text", mask, 0)
    error, data = "", message.raw_body
    try:
        data = message.inflate(INFLATED_BYTES_MAX)
    except (BodyError, ModuleNotFoundError) as failure:
        error = getattr(failure, "text", str(failure))
    return _body(message, data, error, form, mask, start)


def _body(message: Message, data: bytes, error: str, form: str, mask: Mask, start: int) -> Body:
    text, as_json = _text(data), ""
    if text is not None and len(data) <= JSON_BYTES_MAX:
        as_json = laid_out(text, mask)
    is_masked = bool(mask.names) and not mask.hides_bodies
    is_hidden = mask.hides_bodies or (is_masked and not as_json and bool(data))
    if is_hidden:
        text, data = "", b""
    forms = tuple(name for name in FORMS if name == "hex" or (as_json if name == "json" else text is not None))
    if is_masked:
        forms = ("json",) if as_json else ()
    chosen: Form = form if form in forms else "json" if as_json else (*forms, "text")[0]  # type: ignore[assignment]
    shown, end, length = _shown(data, text or "", as_json, chosen, start)
    return Body(
        is_hidden=is_hidden,
        is_masked=is_masked,
        stored_bytes=len(message.raw_body),
        size_bytes=len(message.raw_body) if is_hidden else len(data),
        is_compressed=bool(message.sys_flag & 1),
        error=error,
        charset="UTF-8" if text is not None and not is_hidden else "",
        form=chosen,
        forms=() if is_hidden else forms,
        shown=shown,
        start=start,
        length=length,
        is_cut=end < length,
    )


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _shown(data: bytes, text: str, as_json: str, form: Form, start: int) -> tuple[str, int, int]:
    """Return the shown part from a place on, where it ends, and the length of the whole body in this form."""
    if form == "hex":
        part = data[start : start + HEX_BYTES_MAX]
        return hex_dump(part, start), start + len(part), len(data)
    whole = as_json if form == "json" else text
    shown = whole[start : start + SHOWN_CHARACTERS_MAX]
    return shown, start + len(shown), len(whole)


def hex_dump(data: bytes, start: int = 0) -> str:
    """Return lines of a position, 16 bytes in hexadecimal, and their printable ASCII. The first has the position."""
    lines = []
    for at in range(0, len(data), HEX_LINE):
        part = data[at : at + HEX_LINE]
        ascii_text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start + at:08x}  {part.hex(' ', 1):<{HEX_LINE * 3 - 1}}  {ascii_text}")
    return "\n".join(lines)
