# SPDX-License-Identifier: Apache-2.0
"""What the page of the store asks: the state of each service."""

import asyncio

from services.console.ask.store import Asking, Store
from services.console.pages.store import Answers, StorePage, page_of

GROUPS_COUNTED_MAX = 10_000


async def service_states(store: Store) -> StorePage:
    """Return the page of the store."""
    asking = Asking(store)
    admin = asking.client.admin
    log, index, janitor, policy, groups = await asyncio.gather(
        asking.ask("CommitLog", admin.commitlog_status()),
        asking.ask("Indexer", admin.indexer_status()),
        asking.ask("Janitor", admin.janitor_status()),
        asking.ask("Janitor", admin.retention_policy()),
        _group_count(asking),
    )
    return page_of(Answers(log, index, janitor, policy, groups), store.targets, tuple(asking.found_gaps))


async def _group_count(asking: Asking) -> int | None:
    """Return the number of groups that share messages, None if Delivery could not be asked, or there is none."""
    if not asking.store.has_delivery:
        return None
    groups, _ = await asking.first("Delivery", asking.client.share_groups.list(), GROUPS_COUNTED_MAX)
    has_failed = any(gap.subject == "Delivery" for gap in asking.found_gaps)
    return None if has_failed else len(groups)
