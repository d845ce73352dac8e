# SPDX-License-Identifier: Apache-2.0
"""The questions of the page of the store: the state of each service."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from reput.commitlog.v1 import log_service_pb2
from reput.delivery.v1 import delay_service_pb2
from reput_client import DelayLevel, ReputError
from reput_client.core.call import Call
from reput_client.core.sharing.delayed import delay_level_of

from services.console.ask.places import Place
from services.console.ask.store import Asking, Store, each, why
from services.console.pages.operate.store import Answers, StorePage, page_of

GROUPS_COUNTED_MAX = 10_000
CERTIFICATES_KEPT_S = 300.0
CERTIFICATE_TIMEOUT_S = 1.0


async def service_states(store: Store) -> StorePage:
    """Return the page of the store."""
    asking = Asking(store)
    admin = asking.client.admin
    (log, index, janitor, policy), (groups, (levels, version, start_ms)), (members, ends) = await asyncio.gather(
        asyncio.gather(
            asking.ask("CommitLog", admin.commitlog_status()),
            asking.ask("Indexer", admin.indexer_status()),
            asking.ask("Janitor", admin.janitor_status()),
            asking.ask("Janitor", admin.retention_policy()),
        ),
        asyncio.gather(_group_count(asking), _levels(asking)),
        asyncio.gather(_members(asking), certificate_ends(store)),
    )
    asked = {"commitlog": log, "indexer": index, "janitor": janitor}
    away = {service: "" for service, answer in asked.items() if answer is None}
    answers = Answers(
        log, index, janitor, policy, groups, levels, away,
        delivery_version=version, delivery_start_ms=start_ms, members=members, certificate_ends_s=ends,
    )  # fmt: skip
    return page_of(answers, store.targets, tuple(asking.found_gaps), store.clock.now_ms())


async def _group_count(asking: Asking) -> int | None:
    """Return the number of groups that share messages, None if Delivery could not be asked, or there is none."""
    if not asking.store.has_delivery:
        return None
    groups, _ = await asking.first("Delivery", asking.client.share_groups.list(), GROUPS_COUNTED_MAX)
    has_failed = any(gap.subject == "Delivery" for gap in asking.found_gaps)
    return None if has_failed else len(groups)


async def _levels(asking: Asking) -> tuple[Sequence[DelayLevel], str, int | None]:
    """Return the delay levels, and the version and the start of the Delivery that told them."""
    if not asking.store.has_delivery:
        return (), "", None
    call: Call[Any] = Call(delay_service_pb2.GetDelayLevelsRequest())
    answer = await asking.ask("Delivery", asking.store.run(call))
    if answer is None:
        return (), "", None
    start_ms = answer.start_time.ToMilliseconds() if answer.HasField("start_time") else None
    return [delay_level_of(one) for one in answer.levels], answer.version, start_ms


async def _members(asking: Asking) -> dict[str, Any]:
    """Return the state of each log by its address, or why it is not known."""
    places = [place for place in asking.store.places.all if place.service == "commitlog"]
    return {place.target: state for place, state in await each(places, lambda place: _state_at(asking, place))}


async def _state_at(asking: Asking, place: Place) -> Any:
    try:
        return await asking.store.places.call(place, log_service_pb2.GetStatusRequest())
    except ReputError as error:
        return why(error, asking.store)


async def certificate_ends(store: Store) -> dict[str, float]:
    """Return the ends of the certificates of the services, and of the console's own files, as of some minutes."""
    if not store.certificate_files and not store.has_tls:
        return {}
    now_s = store.clock.monotonic_s()
    if store.certificate_ends is None or now_s - store.certificate_ends[0] > CERTIFICATES_KEPT_S:
        store.certificate_ends = (now_s, await asyncio.to_thread(_certificate_ends, store))
    return store.certificate_ends[1]


def _certificate_ends(store: Store) -> dict[str, float]:
    """Look at certificates. Addresses and files without a certificate are left out: other parts tell of them."""
    from libs.runtime.trust.certificates import certificate_end_s, file_end_s  # its package takes some MB

    targets = dict.fromkeys(place.target for place in store.places.all) if store.has_tls else ()
    found = {target: certificate_end_s(target, timeout_s=CERTIFICATE_TIMEOUT_S) for target in targets}
    for path in store.certificate_files:
        with contextlib.suppress(OSError, ValueError):
            found[str(path)] = file_end_s(path)
    return {name: end_s for name, end_s in found.items() if end_s is not None}
