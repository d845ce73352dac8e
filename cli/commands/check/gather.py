# SPDX-License-Identifier: Apache-2.0
"""The facts for `reput check`: every address of every service is asked, all at once, and certificates are looked at.

Imported only when the check is made, because it imports the client.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import typer
from reput_client import Client, DeadlineExceededError, Options, ReputError, RetryPolicy, UnavailableError

from cli.backup.errors import BackupError, BackupNotFound
from cli.backup.places import open_place
from cli.backup.repository import Repository
from cli.commands.check.rules import Backups, Facts
from cli.commands.state.beside import look_beside
from cli.commands.state.standing import look_still
from cli.connection.addresses import RESOLVERS, is_listening
from cli.connection.client import new_client, options_of
from libs.runtime.trust.certificates import certificate_end_s, file_end_s
from libs.service_names import BESIDE, OF_EVERY_STORE, SERVICES

CALLS_AT_ONCE = 16
TIMEOUT_S = 4.0
"""Longest time of a call unless the user gave another: Nagios ends a plug-in after 10 s."""


class Answer(NamedTuple):
    """The answer of a service at an address: a status, or the reason why there is none."""

    service: str
    target: str
    status: Any
    why: str = ""
    is_refused: bool = False


def facts_of(context: typer.Context, place: str = "") -> Facts:
    """Ask all services, and look at the backups of a place. Raises BadParameter for an address that is none."""
    options = options_of(context)
    if context.find_root().obj.get("timeout_s") is None:
        options = replace(options, timeout_s=min(options.timeout_s, TIMEOUT_S))
    asked = [(service, target) for service in OF_EVERY_STORE for target in options.targets(service)]
    targets = [target for _, target in asked]
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        answers = list(pool.map(lambda one: _ask(options, *one), asked))
        beside = look_beside(context)
        certificates = _certificates(options, [*targets, *(one.target for one in beside)], pool.map)
    others, away = [], {}
    for one in beside:
        name = f"{BESIDE[one.service][0].removeprefix('the ')} at {one.target}"
        if one.serves:
            others.append(name)
        else:
            away[name] = one.health
    away = {_name(one): one.why for one in answers if one.status is None and not one.is_refused} | away
    has_delivery = any(one.service == "delivery" and one.serves for one in beside)
    return Facts(
        time.time(),
        logs={one.target: one.status for one in answers if one.service == "commitlog" and one.status is not None},
        indexes={one.target: one.status for one in answers if one.service == "indexer" and one.status is not None},
        retention=next((one.status for one in answers if one.service == "janitor" and one.status is not None), None),
        away=away,
        unknown={_name(one): one.why for one in answers if one.is_refused},
        others=others,
        certificates=certificates,
        blocked=_blocked(options) if has_delivery else None,
        backups=_backups(place) if place else None,
    )


def _backups(place: str) -> Backups:
    """Look for the newest complete backup of a place."""
    try:
        newest = Repository(open_place(place, may_create=False)).load("latest")
    except BackupNotFound:
        return Backups(place)
    except BackupError as error:
        return Backups(place, why=str(error))
    return Backups(place, newest.created_ms / 1000)


def _name(answer: Answer) -> str:
    return f"{SERVICES[answer.service]} at {answer.target}"


def _ask(options: Options, service: str, target: str) -> Answer:
    if not is_listening(target):
        return Answer(service, target, None, "no process listens there")
    one = replace(options, **{service: target})  # type: ignore[arg-type]
    with new_client(one, RetryPolicy(retries=0)) as client:
        try:
            return Answer(service, target, getattr(client.admin, f"{service}_status")())
        except (UnavailableError, DeadlineExceededError) as error:
            return Answer(service, target, None, error.text)
        except ReputError as error:
            return Answer(service, target, None, str(error), is_refused=True)


def _blocked(options: Options) -> list[str]:
    with Client(options, RetryPolicy(retries=0)) as client:
        return [f"{one.group} at {one.topic}: {one.reason}" for one in look_still(client)]


def _certificates(options: Options, targets: Sequence[str], run: Callable[..., Any]) -> dict[str, float]:
    """Return the ends of the certificates that services show, and of the client's own."""
    if not options.ca_file:
        return {}
    found: dict[str, float] = {}
    plain = [target for target in dict.fromkeys(targets) if not target.startswith(RESOLVERS)]
    look = partial(certificate_end_s, timeout_s=options.timeout_s)
    found |= {target: end_s for target, end_s in zip(plain, run(look, plain), strict=True) if end_s is not None}
    if options.certificate_file:
        with contextlib.suppress(OSError, ValueError):
            found[options.certificate_file] = file_end_s(Path(options.certificate_file))
    return found
