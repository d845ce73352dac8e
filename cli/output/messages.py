# SPDX-License-Identifier: Apache-2.0
"""Messages of the store: as text a line about each and its body as it is, for programs JSON without a loss."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from cli.output.lines import print_json, printable, styled, write
from cli.output.moments import time_text
from cli.output.tables import output_width
from cli.output.wrapping import wrapped

if TYPE_CHECKING:
    from reput_client import Message

MESSAGE_FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_time", "store_time_ms", "born_time_ms", "tag",
    "keys", "unique_id", "offset_message_id", "properties", "born_host", "store_host", "flag", "sys_flag",
    "reconsume_times", "record_size_bytes",
)  # fmt: skip


def message_fields(message: Message) -> dict[str, object]:
    """Return all of a message for JSON. The body is `body` if it is UTF-8 text, `body_base64` otherwise.

    A compressed body that can't be inflated is as it is stored, and `body_error` is the reason.
    """
    fields = {name: getattr(message, name) for name in MESSAGE_FIELDS}
    fields |= {"store_time": time_text(message.store_time_ms), "keys": list(message.keys)}
    body, error = inflated(message)
    text = body_text(body)
    if text is None:
        fields["body_base64"] = base64.b64encode(body).decode()
    else:
        fields["body"] = text
    if error:
        fields["body_error"] = error
    if message.raw_properties:
        fields["raw_properties_base64"] = base64.b64encode(message.raw_properties).decode()
    return fields


def inflated(message: Message) -> tuple[bytes, str]:
    """Return the body and "", or the body as it is stored and the reason why it can't be inflated."""
    from reput_client import BodyError

    try:
        return message.body, ""
    except BodyError as error:
        return message.raw_body, error.text


def body_text(body: bytes) -> str | None:
    """Return the body as text, None if it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def print_message(message: Message, *, as_json: bool, raw: bool = False) -> None:
    """Print a message as JSON, its body alone, or a line about it and its body (hexadecimal if not text).

    Raises BodyError for a body alone that can't be inflated.
    """
    if raw:
        write(message.body + b"\n")
    elif as_json:
        print_json(message_fields(message))
    else:
        place = f"{message.topic} queue {message.queue_id} offset {message.queue_offset}"
        notes = [f"tag {message.tag}"] if message.tag else []
        notes += [f"keys {' '.join(message.keys)}"] if message.keys else []
        about = ", ".join([place, time_text(message.store_time_ms), *notes, message.offset_message_id])
        body, error = inflated(message)
        text = body_text(body)
        shown = list(map(printable, text.split("\n"))) if text is not None else [f"0x{body.hex()}"]
        told = [printable(f"({error})")] if error else []
        head = wrapped(printable(about), output_width(), indent="    ")
        write("\n  ".join(["\n".join(styled(line, bold=True) for line in head), *told, *shown]) + "\n")
