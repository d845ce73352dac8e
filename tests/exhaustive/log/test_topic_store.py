# SPDX-License-Identifier: Apache-2.0
"""TopicStore: an answered change survives random failed calls, kills and power cuts."""

import contextlib
import random

import pytest

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.log.state import topics_file
from libs.log.state.topic_store import TopicStore
from libs.machine.testing.faulty_fs import FaultyFs, by_chance, no_faults
from libs.machine.testing.memory_fs import PowerCut, everything_survives
from tests.support.topic_stores import DATA_DIR, JOURNAL, TOPICS, Queues, new_disk, opened, put, queues_of, remove


async def change_by_chance(store: TopicStore, chance: random.Random) -> Queues:
    """Change, remove or replace topics by chance. Returns the wanted queues. Raises the error of a failed change."""
    now = queues_of(store)
    match chance.choice(("put", "put", "put", "remove", "replace")):
        case "put":
            name, queue_count = chance.choice("abcdef"), chance.randrange(1, 9)
            wanted, work = now | {name: queue_count}, put(store, name, queue_count)
        case "remove":
            name = chance.choice("abcdef")
            wanted, work = {other: count for other, count in now.items() if other != name}, remove(store, name)
        case _:
            wanted = {name: chance.randrange(1, 9) for name in chance.sample("abcdef", 3)}
            topics = {name: TopicConfig(name, 1, count) for name, count in wanted.items()}
            work = store.replace(TopicsFile(topics, DataVersion(chance.randrange(1 << 40), 9)))
    try:
        await work
    except OSError as error:
        error.wanted = wanted  # type: ignore[attr-defined]
        raise
    return wanted


@pytest.mark.parametrize("seed", range(60))
async def test_an_answered_change_survives_faults_and_crashes(seed: int) -> None:
    """Changes, saves, failed calls, kills and power cuts in any order: each start finds the answered changes.

    A change that was answered with an error may be there or not, and nothing else is.
    """
    chance = random.Random(seed)
    disk = new_disk()
    fs = FaultyFs(disk)
    store, possible = opened(fs), [Queues()]
    for _ in range(120):
        fs.plan = by_chance(chance.randrange(1 << 30), 0.3) if chance.random() < 0.3 else no_faults
        assert queues_of(store) in possible
        match chance.choice(("change", "change", "change", "save", "kill", "power")):
            case "change":
                try:
                    possible = [await change_by_chance(store, chance)]
                except OSError as error:
                    possible.append(error.wanted)  # type: ignore[attr-defined]
            case "save":
                with contextlib.suppress(OSError):
                    await store.save()
                    assert not disk.exists(JOURNAL)
                    assert not disk.exists(TOPICS) or topics_file.load(disk, DATA_DIR) == store.file()
            case event:
                fs.plan = no_faults
                cut = PowerCut(chance, page_ratio=chance.random(), name_ratio=chance.random(), torn_ratio=0.3)
                disk.crash(*((everything_survives,) if event == "kill" else (cut.survives, cut.tear)))
                store = opened(fs)
                assert queues_of(store) in possible, event
                possible = [queues_of(store)]
