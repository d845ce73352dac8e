# SPDX-License-Identifier: Apache-2.0
"""How large the properties of a message may be: each kind of message has its own limit, and is told that one."""

import pytest

from services.commitlog.errors import PropertiesTooLarge
from tests.support.commitlog import Machine, append, message


@pytest.mark.parametrize("over", [1, 300, 1_000])
@pytest.mark.parametrize(
    ("properties", "limit"),
    [({}, 32_767), ({"TIMER_DELIVER_MS": "1700000600000"}, 32_511), ({"TRAN_MSG": "true", "PGROUP": "p"}, 32_255)],
    ids=["plain", "timed", "half"],
)
async def test_properties_that_are_too_large_are_told_their_own_limit(
    properties: dict[str, str], limit: int, over: int
) -> None:
    """That of a message with a time, or of half of a transaction, is lower, however far the message is above it."""
    async with Machine().running() as log:
        with pytest.raises(PropertiesTooLarge) as refused:
            await append(log, message(properties={**properties, "long": "v" * (limit + over)}))
        assert refused.value.limit == limit
