# SPDX-License-Identifier: Apache-2.0
"""A store that may have been created by mistake: an Indexer knows another, longer log."""

import pytest

from services.commitlog.errors import StoreReplaced
from tests.support.commitlog import Machine, append, message


async def test_a_longer_log_of_another_name_keeps_appends_out() -> None:
    """A longer log of another name refuses appends until an Indexer that follows this log reports.

    The status names the reason, and the error names the remedy.
    """
    async with Machine().running() as log:
        await append(log, message())
        others = log.other_histories
        with others.followed("another", 10_000):
            assert log.gate.refusals() == ["STORE_REPLACED"]
            with pytest.raises(StoreReplaced, match="index rebuild"):
                await append(log, message())
        assert log.gate.refusals() == ["STORE_REPLACED"]
        others.note_own("")
        assert log.gate.refusals() == ["STORE_REPLACED"]
        others.note_own(log.epochs.history_id)
        await append(log, message())


@pytest.mark.parametrize(
    ("history_id", "physical_offset"),
    [("another", 0), ("another", 1), ("", 10_000), (None, 10_000)],
    ids=["it held nothing", "it held less", "it has no name", "it is this one"],
)
async def test_others_keep_nobody_out(history_id: str | None, physical_offset: int) -> None:
    """Appends pass if an Indexer knows less, its log has no name, or it lost a tail with this log."""
    async with Machine().running() as log:
        await append(log, message())
        name = log.epochs.history_id if history_id is None else history_id
        with log.other_histories.followed(name, physical_offset):
            assert log.gate.refusals() == []


async def test_an_indexer_that_was_pointed_here_by_mistake() -> None:
    """An Indexer of another log, connected by mistake, refuses no appends if the log has an Indexer of its own."""
    async with Machine().running() as log:
        others = log.other_histories
        with others.followed(log.epochs.history_id, 0), others.followed("another", 10_000):
            assert log.gate.refusals() == []
