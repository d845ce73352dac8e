# SPDX-License-Identifier: Apache-2.0
"""Indexer: a lifecycle and a few parts, all of which exist from the beginning."""

import inspect

from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.fake_sink import FakeSink
from tests.support.indexer import make_indexer, running
from tests.support.patience import eventually

PUBLIC_PART_COUNT_MAX, LINE_COUNT_MAX = 5, 150


async def test_it_has_few_parts_and_gets_no_more() -> None:
    """Callers get the parts that they need; no part is added after the Indexer was made."""
    log = FakeLog()
    log.append()
    indexer = make_indexer(log, sink=FakeSink(log))
    parts = [vars(part) for part in (indexer, indexer.follow.reput, indexer.follow.flush, indexer.indexes)]
    names = [set(part) for part in parts]
    assert len([name for name in names[0] if not name.startswith("_")]) <= PUBLIC_PART_COUNT_MAX
    assert len(inspect.getsource(Indexer).splitlines()) <= LINE_COUNT_MAX
    indexer.start()
    await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
    await indexer.close()
    assert [set(part) for part in parts] == names


async def test_what_was_abandoned_is_recovered() -> None:
    """An abandoned Indexer ends without its last steps, so the next start is unclean."""
    log, fs = FakeLog(), MemoryFs()
    log.append()
    indexer = make_indexer(log, fs)
    indexer.start()
    await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
    await indexer.abandon()
    fs.crash(everything_survives)
    assert not make_indexer(log, fs).follow.completeness.is_complete
    fs.crash(everything_survives)
    async with running(log, fs) as again:
        await eventually(lambda: again.follow.completeness.is_complete)
