# SPDX-License-Identifier: Apache-2.0
"""Wire: Kombu's messages as bodies, properties and times of the store's messages. No I/O."""

import base64
import binascii
import json
import re
from datetime import datetime
from typing import Any

from reput_client import Durability, NewMessage

DELAY_MS_MAX = 40 * 24 * 3600 * 1000 - 60_000
"""The store holds a message for 40 days at most; a minute is for clocks that differ."""
EARLY_MS = 60_000
"""A message that arrives so long before its eta is delayed again."""
TRANSIENT = 1
"""AMQP's delivery mode of a message that need not survive."""

_KEY = re.compile(r"[!-~]{1,128}")
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def new_message(topic: str, raw: dict[str, Any], now_ms: int, tag: str | None = None) -> NewMessage:
    """Return the message of the store for a message of Kombu.

    Its key is the task's id, and its tag the task's name unless `tag` is given. `eta` delays it.
    """
    headers, properties = raw.get("headers") or {}, raw.get("properties") or {}
    key = headers.get("id") or properties.get("correlation_id")
    task = headers.get("task")
    if tag is None and isinstance(task, str) and _TAG.fullmatch(task):
        tag = task
    return NewMessage(
        topic,
        json.dumps(raw, default=_plain, separators=(",", ":")).encode(),
        tag=tag,
        keys=key if isinstance(key, str) and _KEY.fullmatch(key) else (),
        deliver_at=deliver_at(raw, now_ms),
    )


def decoded(body: bytes) -> dict[str, Any]:
    """Return the message of Kombu in a body. Raises ValueError for another body."""
    raw = json.loads(body)
    if not isinstance(raw, dict) or not isinstance(raw.get("properties"), dict):
        raise ValueError("the body is no message of Kombu")  # noqa: TRY004 - it is the content that is wrong
    raw["properties"].setdefault("delivery_info", {})
    encoding = raw["properties"].get("body_encoding")
    if encoding == "base64":
        try:
            base64.b64decode(raw.get("body") or "", validate=True)
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"the body is no base64: {error}") from None
    return raw


def deliver_at(raw: dict[str, Any], now_ms: int) -> int | None:
    """Return when the store delivers a message, in milliseconds, None for at once."""
    due_ms = eta_ms(raw)
    if due_ms is None or due_ms <= now_ms:
        return None
    return min(due_ms, now_ms + DELAY_MS_MAX)


def eta_ms(raw: dict[str, Any]) -> int | None:
    """Return the eta of a task in milliseconds, rounded up. None without one, or with one that has no time zone."""
    eta = (raw.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return None
    try:
        time = datetime.fromisoformat(eta)
    except ValueError:
        return None
    return None if time.tzinfo is None else -int(-time.timestamp() * 1000 // 1)


def is_early(raw: dict[str, Any], now_ms: int) -> bool:
    """Return whether a message came long before its eta, which was more than the store's 40 days ahead."""
    due_ms = eta_ms(raw)
    return due_ms is not None and due_ms > now_ms + EARLY_MS


def is_expired(raw: dict[str, Any], stored_ms: int, now_ms: int) -> bool:
    """Return whether a message is older than its `expiration`, which is text of milliseconds as in AMQP."""
    try:
        return now_ms - stored_ms > int(raw["properties"]["expiration"])
    except (KeyError, TypeError, ValueError):
        return False


def durability(raw: dict[str, Any], level: Durability) -> Durability:
    """Return the durability of a message: `level`, or memory for a transient message."""
    return Durability.MEMORY if is_transient(raw) else level


def is_transient(raw: dict[str, Any]) -> bool:
    """Return whether a message need not survive."""
    return bool((raw.get("properties") or {}).get("delivery_mode") == TRANSIENT)


def levels_of(arguments: dict[str, Any] | None, levels_max: int) -> tuple[int, int]:
    """Return the largest priority of a queue and its number of levels: (0, 1) without `x-max-priority`."""
    try:
        priority_max = min(int((arguments or {}).get("x-max-priority") or 0), 255)
    except (TypeError, ValueError):
        return 0, 1
    return (priority_max, min(priority_max + 1, levels_max)) if priority_max > 0 else (0, 1)


def level_of(raw: dict[str, Any], priority_max: int, levels: int) -> int:
    """Return the level of a message's priority. The highest level is delivered first."""
    try:
        priority = int((raw.get("properties") or {}).get("priority") or 0)
    except (TypeError, ValueError):
        priority = 0
    return max(0, min(priority, priority_max)) * levels // (priority_max + 1)


def _plain(value: object) -> object:
    """Return a value that JSON lacks as text: times in ISO 8601, bytes and anything else as their text."""
    if isinstance(value, datetime):
        return value.isoformat()
    return bytes(value).decode("utf-8", "replace") if isinstance(value, bytes | bytearray | memoryview) else str(value)
