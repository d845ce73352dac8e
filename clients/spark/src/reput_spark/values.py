# SPDX-License-Identifier: Apache-2.0
"""Option values that reading and writing share: parses texts into checked values. Names are case-insensitive.

Pure: no Spark, no network. Every refusal is a BadOption that names the option.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

from reput_spark.errors import BadOption

ENDPOINT_PATTERN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):([0-9]{1,5})")
KAFKA_ADDRESS_NAMES = ("kafka.bootstrap.servers", "bootstrap.servers")
"""Names of Spark's Kafka source and sink for the addresses of servers."""
KAFKA_ONLY = {
    "groupidprefix": "a scan has no consumer group; leave it out",
    "kafka.group.id": "a scan has no consumer group; leave it out",
    "minoffsetspertrigger": "Spark has no such limit for sources in Python; trigger(processingTime=...) gathers more",
    "maxtriggerdelay": "Spark has no such limit for sources in Python; trigger(processingTime=...) gathers more",
}
"""Options of Spark's Kafka source that have no counterpart, and why, by their names in lower case."""
STORE = "store"
"""The option with the address of the store: that of a gateway, which serves all APIs."""
REQUIRED: Any = object()
"""Marks an option without a default."""
T = TypeVar("T")
Convert = Callable[[str, str], T]
"""Makes a value of the name and the text of an option. Raises BadOption."""


def option(name: str, convert: Convert[T], default: T) -> T:
    """Declare a field that is an option: its name, the parser of its text, and its default."""
    return cast("T", field(metadata={"option": (name, convert, default)}))


def choice(**values: T) -> Convert[T]:
    """Return a parser of a choice between words, in any case."""
    words = f"neither {' nor '.join(values)}" if len(values) == 2 else f"none of {', '.join(values)}"

    def convert(name: str, text: str) -> T:
        if text.lower() not in values:
            raise BadOption(name, f"{text!r} is {words}")
        return values[text.lower()]

    return convert


def matching(pattern: str, what: str) -> Convert[str]:
    """Return a parser of texts that match a regular expression as a whole."""

    def convert(name: str, text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise BadOption(name, f"{text!r} is not {what}")
        return text

    return convert


def number(least: int, most: int) -> Convert[int]:
    """Return a parser of whole numbers from `least` to `most`."""

    def convert(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise BadOption(name, f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return convert


def size_bytes(most: int) -> Convert[int]:
    """Return a parser of sizes such as `65536`, `512k`, `128m`, `1g`, up to `most` bytes."""

    def convert(name: str, text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,19})\s*([kmg]?)b?", text.lower())
        size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]] if match else 0
        if not 1 <= size <= most:
            raise BadOption(name, f"{text!r} is not a size from 1 to {most} bytes, such as 512k or 128m")
        return size

    return convert


boolean = choice(true=True, false=False)
topic_name = matching("[%|a-zA-Z0-9_-]{1,127}", "a topic name")


def file_name(_name: str, text: str) -> str:
    """Return the name of a file as it is: blanks may belong to it."""
    return text


def topic_names(name: str, text: str) -> tuple[str, ...]:
    """Parse topic names separated by commas."""
    return tuple(dict.fromkeys(topic_name(name, part.strip()) for part in text.split(",")))


def shard_name(name: str, text: str) -> str:
    """Check the name of a shard."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", text):
        raise BadOption(name, f"{text!r} is not the name of a shard: letters, digits, _ and -")
    return text


def shard_names(name: str, text: str) -> tuple[str, ...]:
    """Parse names of shards separated by commas."""
    return tuple(dict.fromkeys(shard_name(name, part.strip()) for part in text.split(",")))


def addresses(name: str, text: str) -> tuple[str, ...]:
    """Parse `host:port[,host:port]`."""
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        match = ENDPOINT_PATTERN.fullmatch(part)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise BadOption(name, f"{part!r} is not host:port")
    return parts


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of calls: servers, retries, time-outs and credentials. Holds no secret, only names of files."""

    endpoints: tuple[str, ...]
    """Addresses of servers of the same store, `host:port`; tried in turn."""
    retry_count_max: int
    """Retries in a row without progress before the call fails."""
    rpc_timeout_ms: int = option("rpcTimeoutMs", number(1, 3_600_000), 30_000)
    """Longest wait for an answer or a frame, in milliseconds."""
    retry_interval_ms: int = option("retryIntervalMs", number(0, 600_000), 1000)
    """Wait before the first retry, in milliseconds; it doubles with each retry."""
    shard: str = option("shard", shard_name, "")
    """The shard that all calls are for, at a gateway before several; empty for a store that is no shard."""
    auth_token_file: str = option("auth.token.file", file_name, "")
    tls_ca_file: str = option("tls.ca.file", file_name, "")
    tls_cert_file: str = option("tls.cert.file", file_name, "")
    tls_key_file: str = option("tls.key.file", file_name, "")


def names_of(kind: type[CallOptions]) -> tuple[str, ...]:
    """Return the names of the options that the fields of a class declare."""
    return tuple(dict.fromkeys(declared.metadata["option"][0] for declared in fields(kind)))


def values_of(kind: type[CallOptions], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the fields of a class. Raises BadOption."""
    values: dict[str, Any] = {}
    for declared in fields(kind):
        name, convert, default = declared.metadata["option"]
        text = given.get(name, "") if convert is file_name else given.get(name, "").strip()
        if default is REQUIRED and not text:
            raise BadOption(name, f"is required, or {STORE!r}" if convert is addresses else "is required")
        values[declared.name] = convert(name, text) if name in given else copy(default)
    if bool(given.get("tls.cert.file")) != bool(given.get("tls.key.file")):
        raise BadOption("tls.cert.file", "and 'tls.key.file' need each other")
    return values


def canonical(options: Mapping[str, str], names: Sequence[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their own names. Raises BadOption for an option that is unknown or given twice."""
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


def with_store(given: dict[str, str], name: str) -> dict[str, str]:
    """Return options with the address of the store as that of a service without one. Raises BadOption."""
    text = given.get(STORE, "").strip()
    if not text or given.get(name, "").strip():
        return given
    addresses(STORE, text)
    return {**given, name: text}


def unknown_option(key: str, known: Mapping[str, str]) -> str:
    """Return the reason why an option is refused, with a similar name of a known option."""
    if key.lower() == "auth.token":
        return "options appear in query plans; use 'auth.token.file', or REPUT_CLIENT_TOKEN in the environment"
    if key.lower() == "path":
        return "load() takes no path; name the topic with 'subscribe'"
    if key.lower() in KAFKA_ONLY:
        return KAFKA_ONLY[key.lower()]
    if key.lower().startswith("kafka."):
        return "is a setting of Kafka's client; leave it out (TLS is 'tls.ca.file', a token 'auth.token.file')"
    near = difflib.get_close_matches(key.lower(), known, n=1)
    return "no such option" + (f"; did you mean {known[near[0]]!r}?" if near else "; docs/spark-reference.md has them")


def _unrepeated(name: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raises BadOption for a name that comes twice: a value would be ignored silently."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadOption(name, f"names {key!r} twice")
        found[key] = value
    return found


def json_value(name: str, text: str) -> Any:
    """Parse JSON."""
    if text.startswith("\ufeff"):
        raise BadOption(name, "begins with a byte order mark (U+FEFF): leave it out")
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _unrepeated(name, pairs))
    except RecursionError:
        raise BadOption(name, "is nested too deeply") from None
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise BadOption(name, "has an integer of more digits than a queue offset or a time") from None
        raise BadOption(name, f"is not JSON: {error}") from error
