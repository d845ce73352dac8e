# SPDX-License-Identifier: Apache-2.0
"""The limit of the properties of a message: each kind of message has its own limit, and an error names it."""

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
    """The error has the limit of the message's kind, with properties of any size above it.

    Messages with a time and half messages have lower limits.
    """
    async with Machine().running() as log:
        with pytest.raises(PropertiesTooLarge) as refused:
            await append(log, message(properties={**properties, "long": "v" * (limit + over)}))
        assert refused.value.limit == limit
