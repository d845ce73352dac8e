# SPDX-License-Identifier: Apache-2.0
"""Settings: services, credentials and times of a transport, from its URL and its transport options. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from reput_client import Durability

from kombu_reput.names import prefix_of

PORT = 8081
"""The port of a URL without one: that of a store's gateway."""
LEVELS_MAX = 4
"""Levels of priority of a queue with `x-max-priority`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a transport. An address that is None comes from the client's variables, then its defaults."""

    store: str | None = None
    """The address of the store, from the URL: that of each service without one."""
    commitlog: str | None = None
    indexer: str | None = None
    janitor: str | None = None
    delivery: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    token: str | None = None
    timeout_s: float = 30.0
    """Longest time of a call with its retries."""
    prefix: str = "kombu"
    """The beginning of all names in the store, from the URL's virtual host."""
    lease_s: float = 60.0
    """A message comes again this long after its worker died. A living worker extends the lease."""
    attempts_max: int = 100
    """A message that was delivered so often becomes a dead letter."""
    retry_delay_s: float = 1.0
    """How long a message waits whose lease was over."""
    ack_delay_s: float = 0.01
    """How long an acknowledgement waits for others. 0: it is in the log when `ack` returns."""
    queue_count: int = 1
    """Queues of a topic that the transport creates. One keeps the order of a Kombu queue."""
    durability: str = "default"
    """The durability that a persistent message waits for: default, memory, local_disk or replicated."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value out of its limits."""
        for name, low, high in (
            ("timeout_s", 0.1, 3600.0),
            ("lease_s", 1.0, 12 * 3600.0),
            ("attempts_max", 1, 1000),
            ("retry_delay_s", 0.0, 12 * 3600.0),
            ("ack_delay_s", 0.0, 1.0),
            ("queue_count", 1, 64),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}: expected {low} to {high}")
        if self.durability.upper() not in Durability.__members__:
            known = ", ".join(name.lower() for name in Durability.__members__)
            raise ValueError(f"durability is {self.durability!r}: expected {known}")

    @property
    def level(self) -> Durability:
        """The durability of persistent messages."""
        return Durability[self.durability.upper()]

    @property
    def place(self) -> tuple[str | None, ...]:
        """The addresses and the prefix: connections with the same place have the same queues."""
        return self.store, self.commitlog, self.indexer, self.prefix

    def connect_arguments(self) -> dict[str, Any]:
        """Return the arguments of `reput_client.connect`."""
        services = ("store", "commitlog", "indexer", "janitor", "delivery")
        names = (*services, "ca_file", "certificate_file", "key_file", "server_name", "token", "timeout_s")
        return {name: getattr(self, name) for name in names}


def settings_of(url: str, options: Mapping[str, Any], password: str | None = None) -> Settings:
    """Return the settings of a URL and of transport options, which take precedence over the URL.

    Transport options that are not the transport's own belong to Kombu and Celery. Raises ValueError for an unknown or
    wrong option of the URL.
    """
    values = _of_url(url)
    if password:
        values.setdefault("token", password)
    own = {field.name for field in fields(Settings)}
    values.update({name: value for name, value in options.items() if name in own and value is not None})
    return Settings(**{name: _converted(name, value) for name, value in values.items()})


def _of_url(url: str) -> dict[str, Any]:
    parts = urlsplit(url if "://" in url else f"reput://{url}")
    values: dict[str, Any] = {"prefix": prefix_of(unquote(parts.path))}
    if parts.hostname:
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        values["store"] = f"{host}:{parts.port or PORT}"
    if parts.password or parts.username:
        values["token"] = unquote(parts.password or parts.username or "")
    known = {field.name for field in fields(Settings)} - {"prefix"}
    for name, value in parse_qsl(parts.query):
        if name not in known:
            raise ValueError(f"the URL's option {name} is unknown: expected one of {', '.join(sorted(known))}")
        values[name] = value
    return values


def _converted(name: str, value: Any) -> Any:
    """Return a value of an option as its own type."""
    times = dict.fromkeys(("timeout_s", "lease_s", "retry_delay_s", "ack_delay_s"), float)
    kind = {**times, "attempts_max": int, "queue_count": int}
    if name not in kind:
        return value
    try:
        return kind[name](value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}: expected a number") from None
