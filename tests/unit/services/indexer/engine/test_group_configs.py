# SPDX-License-Identifier: Apache-2.0
"""GroupConfigs: RocketMQ's settings of groups, read, changed and kept."""

import random
from pathlib import Path

import pytest

from libs.formats.config import subscription_groups_json
from libs.log.errors import ConfigFileDamaged
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, PowerCut
from libs.requests.errors import WindowFull
from services.indexer.engine.groups.group_configs import GroupConfig, GroupConfigs
from tests.support.golden import golden

PATH = Path("/store/config/subscriptionGroup.json")


def configs(fs: MemoryFs, *, count_max: int = 100) -> GroupConfigs:
    """Return the settings in the file."""
    made = GroupConfigs(fs, PATH, ManualClock(), count_max=count_max)
    made.load()
    return made


@pytest.fixture
def fs() -> MemoryFs:
    """A disk with RocketMQ's file."""
    fs = MemoryFs()
    fs.make_directory(PATH.parent)
    fs.write_atomic(PATH, golden("config_files/v1/subscriptionGroup.json"))
    return fs


def test_what_rocketmq_wrote(fs: MemoryFs) -> None:
    """Deliveries are RocketMQ's retries plus the first delivery."""
    found = configs(fs)
    assert found.find("billing") == GroupConfig(attempts_max=17)
    assert found.find("mail") == GroupConfig(
        attempts_max=5, backoffs_ms=(1_000, 5_000), is_ordered=True, is_paused=True
    )
    assert found.find("nobody") is None


async def test_others_stay_as_they_are(fs: MemoryFs) -> None:
    """A change of a group leaves all other settings as read; an unchanged group writes nothing."""
    before = subscription_groups_json.loads(fs.read(PATH).decode())
    store = configs(fs)
    unchanged = store.find("exp")
    assert unchanged is not None
    await store.store({"exp": unchanged})
    assert fs.read(PATH) == golden("config_files/v1/subscriptionGroup.json")
    await store.store({"exp": unchanged, "new": GroupConfig(attempts_max=3, backoffs_ms=(7,))}, ["mail"])
    after = subscription_groups_json.loads(fs.read(PATH).decode())
    assert sorted(after.groups) == ["billing", "exp", "new"]
    assert after.groups["exp"] == before.groups["exp"]
    assert (after.groups["new"].retry_count_max, after.groups["new"].backoffs_ms) == (2, (7,))
    assert after.others == before.others
    assert after.data_version is not None
    assert after.data_version.counter == 1


async def test_it_is_durable(fs: MemoryFs) -> None:
    """A power cut after the answer loses nothing; the copy replaces a damaged file."""
    await configs(fs).store({"new": GroupConfig(is_paused=True)})
    cut = PowerCut(random.Random(1), page_ratio=0, name_ratio=0, torn_ratio=0)
    fs.crash(cut.survives, cut.tear)
    assert configs(fs).find("new") == GroupConfig(is_paused=True)
    fs.write_atomic(PATH, b"{")
    assert configs(fs).find("new") == GroupConfig(is_paused=True)
    fs.write_atomic(PATH.with_name(PATH.name + ".bak"), b"{")
    with pytest.raises(ConfigFileDamaged):
        configs(fs)


async def test_they_are_bounded(fs: MemoryFs) -> None:
    """A group above the limit is refused, and nothing changes."""
    store = configs(fs, count_max=4)
    await store.store({"new": GroupConfig()})
    with pytest.raises(WindowFull):
        await store.store({"newer": GroupConfig(), "billing": GroupConfig(attempts_max=1)})
    assert (store.find("newer"), store.find("billing")) == (None, GroupConfig())
