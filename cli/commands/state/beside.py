# SPDX-License-Identifier: Apache-2.0
"""Delivery and the gateway, which a store may have beside its three services: whether they serve, by their health.

Their counts are in their metrics, and the places of groups in `reput top`. Imported only when a service listens.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import typer

from cli.commands.state.health import SERVING, health_of
from cli.connection.addresses import beside_of
from cli.connection.client import options_of
from libs.service_names import BESIDE


class Beside(NamedTuple):
    """Delivery or the gateway at a moment."""

    service: str
    target: str
    health: str
    answer_ms: float

    @property
    def serves(self) -> bool:
        """Whether it serves."""
        return self.health == SERVING


def look_beside(context: typer.Context) -> list[Beside]:
    """Ask the services that were named, and the services that listen beside a store at its usual ports."""
    options = options_of(context)
    found = []
    for service, (targets, is_named) in beside_of(context.find_root().obj).items():
        for target in targets:
            begun_s = time.monotonic()
            health = health_of(options, target, begun_s, service).health
            if is_named or health == SERVING:  # another program may use a usual port
                found.append(Beside(service, target, health, 1000 * (time.monotonic() - begun_s)))
    return found


def beside_lines(found: Iterable[Beside]) -> Iterator[str]:
    """Yield a sentence about all services that serve."""
    serving: dict[str, int] = {}
    for one in found:
        if one.serves:
            serving[one.service] = serving.get(one.service, 0) + 1
    if serving:
        names = (BESIDE[service][0] + (f" ({count})" if count > 1 else "") for service, count in serving.items())
        yield f"{' and '.join(names)} serve{'s' if sum(serving.values()) == 1 else ''}"


def beside_document(found: Iterable[Beside]) -> dict[str, list[dict[str, object]]]:
    """Return the services as JSON, by service."""
    rows: dict[str, list[dict[str, object]]] = {}
    for one in found:
        row: dict[str, object] = {"target": one.target, "health": one.health, "answer_ms": round(one.answer_ms, 1)}
        rows.setdefault(one.service, []).append(row)
    return rows
