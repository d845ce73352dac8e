# SPDX-License-Identifier: Apache-2.0
"""Option values that reading and writing share: names in any case, text in, checked values out.

Pure: no Spark, no network. Every refusal is a BadOption that names the option.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reput_spark.errors import BadOption

CALL_NAMES = (
    "rpcTimeoutMs", "numRetries", "retryIntervalMs", "auth.token.file", "tls.ca.file", "tls.cert.file", "tls.key.file",
)  # fmt: skip
"""Options of every call."""

TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
ENDPOINT_PATTERN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):([0-9]{1,5})")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Whom to call, and how. Holds no secret, only where to find one."""

    endpoints: tuple[str, ...]
    """Addresses of servers of the same store, `host:port`; tried in turn."""
    rpc_timeout_ms: int
    """Longest wait for one answer or one frame."""
    retry_count_max: int
    """Retries in a row without progress before the call fails."""
    retry_interval_ms: int
    """Wait before the first retry; doubles with each."""
    auth_token_file: str
    tls_ca_file: str
    tls_cert_file: str
    tls_key_file: str


def call_values(given: Mapping[str, str], *, retry_count: int) -> dict[str, Any]:
    """The fields of CallOptions but for the endpoints; `retry_count` is the default. Raises BadOption."""
    if bool(given.get("tls.cert.file")) != bool(given.get("tls.key.file")):
        raise BadOption("tls.cert.file", "and 'tls.key.file' need each other")
    return {
        "rpc_timeout_ms": value(given, "rpcTimeoutMs", number(1, 3_600_000), 30_000),
        "retry_count_max": value(given, "numRetries", number(0, 1000), retry_count),
        "retry_interval_ms": value(given, "retryIntervalMs", number(0, 600_000), 1000),
        "auth_token_file": given.get("auth.token.file", ""),
        "tls_ca_file": given.get("tls.ca.file", ""),
        "tls_cert_file": given.get("tls.cert.file", ""),
        "tls_key_file": given.get("tls.key.file", ""),
    }


def value(given: Mapping[str, str], name: str, convert: Callable[[str, str], T], default: T) -> T:
    """The value of an option, or its default. Raises BadOption."""
    text = given.get(name)
    return default if text is None else convert(name, text.strip())


def canonical(options: Mapping[str, str], names: Sequence[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """The options by their own names. Raises BadOption for one that is unknown or given under two names."""
    known = {name.lower(): name for name in (*names, *aliases)}
    given: dict[str, str] = {}
    for key, text in options.items():
        name = known.get(key.lower())
        if name is None:
            raise BadOption(key, unknown_option(key, known))
        target = aliases.get(name, name)
        if target in given:
            raise BadOption(key, f"given twice, it is the same as {target!r}")
        given[target] = text
    return given


def unknown_option(key: str, known: Mapping[str, str]) -> str:
    """Why an option is refused, with the name that was probably meant."""
    if key.lower() == "auth.token":
        return "options appear in query plans; use 'auth.token.file', or REPUT_CLIENT_TOKEN in the environment"
    if key.lower() == "path":
        return "load() takes no path; name the topic with 'subscribe'"
    near = difflib.get_close_matches(key.lower(), known, n=1)
    return "no such option" + (f"; did you mean {known[near[0]]!r}?" if near else "; docs/spark-reference.md has them")


def required(given: Mapping[str, str], name: str, convert: Callable[[str, str], T]) -> T:
    """The value of an option that has no default."""
    if not given.get(name, "").strip():
        raise BadOption(name, "is required")
    return convert(name, given[name].strip())


def endpoints(name: str, text: str) -> tuple[str, ...]:
    """Parses `host:port[,host:port]`."""
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        match = ENDPOINT_PATTERN.fullmatch(part)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise BadOption(name, f"{part!r} is not host:port")
    return parts


def topics(name: str, text: str) -> tuple[str, ...]:
    """Parses topic names separated by commas."""
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for part in parts:
        if TOPIC_PATTERN.fullmatch(part) is None:
            raise BadOption(name, f"{part!r} is not a topic name")
    return parts


def boolean(name: str, text: str) -> bool:
    """Parses true or false."""
    if text.lower() not in ("true", "false"):
        raise BadOption(name, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def number(least: int, most: int) -> Callable[[str, str], int]:
    """A parser of whole numbers from `least` to `most`."""

    def convert(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise BadOption(name, f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return convert


def size_bytes(most: int) -> Callable[[str, str], int]:
    """A parser of sizes such as `65536`, `512k`, `128m`, `1g`, up to `most` bytes."""

    def convert(name: str, text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,19})\s*([kmg]?)b?", text.lower())
        size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]] if match else 0
        if not 1 <= size <= most:
            raise BadOption(name, f"{text!r} is not a size from 1 to {most} bytes, such as 512k or 128m")
        return size

    return convert


def json_value(name: str, text: str) -> Any:
    """Parses JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadOption(name, f"is not JSON: {error}") from error
