# SPDX-License-Identifier: Apache-2.0
"""GroupConfigs: config/subscriptionGroup.json, for RocketMQ, and for groups that come from RocketMQ.

Invariants: fields without a meaning here are kept as they were read; a group whose settings do not change keeps its
entry; the file is replaced atomically, and then its copy `.bak`. Callers: the event loop's thread, except for `load`.
Layout: docs/formats/config_files.md section 5; RocketMQ's counterpart is SubscriptionGroupManager.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from libs.formats.config import subscription_groups_json
from libs.formats.config.subscription_groups_json import (
    RETRY_COUNT_DEFAULT,
    SubscriptionGroup,
    SubscriptionGroupsFile,
    customized,
)
from libs.log.state import config_file
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.requests.errors import WindowFull


class GroupConfig(Struct, frozen=True, kw_only=True):
    """The retry settings of a group. Times are in milliseconds."""

    attempts_max: int = RETRY_COUNT_DEFAULT + 1
    backoffs_ms: tuple[int, ...] = ()
    """Empty: RocketMQ's own backoffs."""
    is_ordered: bool = False
    is_paused: bool = False


class GroupConfigs:
    """The settings of all groups. Create it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path, clock: Clock, *, count_max: int) -> None:
        self._fs, self._path, self._clock = fs, path, clock
        self._count_max = count_max
        self._file = SubscriptionGroupsFile()
        self._save_lock = asyncio.Lock()

    def load(self) -> None:
        """Read the file, or its copy if it is missing, empty or damaged. Raises ConfigFileDamaged if both are."""
        self._file = config_file.read(self._fs, self._path, subscription_groups_json.loads) or SubscriptionGroupsFile()

    def find(self, group: str) -> GroupConfig | None:
        """Return the settings of a group, None if the group has no settings."""
        found = self._file.groups.get(group)
        return None if found is None else _config(found)

    async def store(self, configs: Mapping[str, GroupConfig], deleted: Sequence[str] = ()) -> None:
        """Store settings, and delete settings of `deleted` groups. Durable on return. Raises WindowFull and OSError."""
        async with self._save_lock:
            groups = {name: group for name, group in self._file.groups.items() if name not in deleted}
            for name, config in configs.items():
                known = groups.get(name, SubscriptionGroup())
                groups[name] = known if _config(known) == config else _group(known, config)
            if len(groups) > self._count_max:
                raise WindowFull("consumer groups with settings", limit=self._count_max)
            if groups == self._file.groups:
                return
            version = self._file.data_version
            if version is not None:
                version = replace(version, counter=version.counter + 1, timestamp_ms=self._clock.now_ms())
            file = replace(self._file, groups=groups, data_version=version)
            data = subscription_groups_json.dumps(file).encode()
            await asyncio.to_thread(config_file.save, self._fs, self._path, data)
            self._file = file


def _config(group: SubscriptionGroup) -> GroupConfig:
    retry_count = RETRY_COUNT_DEFAULT if group.retry_count_max < 0 else group.retry_count_max
    return GroupConfig(
        attempts_max=retry_count + 1,
        backoffs_ms=group.backoffs_ms,
        is_ordered=group.is_orderly,
        is_paused=not group.is_enabled,
    )


def _group(known: SubscriptionGroup, config: GroupConfig) -> SubscriptionGroup:
    is_same = known.backoffs_ms == config.backoffs_ms
    return replace(
        known,
        is_enabled=not config.is_paused,
        is_orderly=config.is_ordered,
        retry_count_max=config.attempts_max - 1,
        retry_policy=known.retry_policy if is_same else customized(config.backoffs_ms),
    )
