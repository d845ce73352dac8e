# SPDX-License-Identifier: Apache-2.0
"""TopicRegistry: the topics of the store, in memory, in `config/topics.json` and in the kernel's table.

Invariants: a change is in the file, durably, before anything relies on it; at most one change is under way; the
kernel's table forbids appends to the store's own topics and to those that are set apart, whatever the file permits
RocketMQ.
Callers: the loop that owns the log; changes wait for a worker thread that writes the file.
Not handled: counters of queues, which live in the kernel's table and outlast their topic.
Layout: docs/formats/config_files.md section 2; RocketMQ's counterpart is TopicConfigManager.
"""

import asyncio
import bisect
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import PERMISSION_READ, PERMISSION_WRITE, TopicConfig, TopicsFile
from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.formats.records.delay_level import DELAY_LEVEL_MAX, SCHEDULE_TOPIC
from libs.formats.state.system_topics import SYSTEM_TOPICS, is_system_topic
from libs.kernel.append.topic_table import TopicTable
from libs.log.state import topics_file
from libs.log.state.set_apart import SetApart
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import BadArgument, TopicSetApart
from services.commitlog.engine.write.topic_names import check_topic_name
from services.commitlog.errors import TopicExists, TopicForbidden, TopicNotFound


def permission_of(*, is_readable: bool, is_writable: bool) -> int:
    """The permission bits of topics.json."""
    return PERMISSION_READ * is_readable | PERMISSION_WRITE * is_writable


class TopicRegistry:
    """All topics by name. `load` comes first."""

    def __init__(
        self,
        fs: Fs,
        data_dir: Path,
        clock: Clock,
        *,
        default_queue_count: int,
        topic_count_max: int,
        topic_queue_count_max: int,
        queue_count_max: int,
        delay_level_count: int = DELAY_LEVEL_MAX,
    ) -> None:
        self.table = TopicTable()
        self.set_apart = SetApart()
        """Topics that nobody appends to, changes, makes or deletes here."""
        self._fs = fs
        self._data_dir = data_dir
        self._clock = clock
        self._default_queue_count = default_queue_count
        self._topic_count_max = topic_count_max
        self._topic_queue_count_max = topic_queue_count_max
        self._queue_count_max = queue_count_max
        self._delay_level_count = delay_level_count
        self._file = TopicsFile()
        self._names: list[str] = []
        self._change = asyncio.Lock()

    def load(self) -> None:
        """Read the file, or its backup when it is missing or damaged, and add the store's own topics. Blocks.

        Raises ConfigFileDamaged when there are files and none can be read: a store that forgot its topics would take
        messages for queues that do not exist.
        """
        found = topics_file.load(self._fs, self._data_dir)
        topics = dict(found.topics)
        missing = {topic.name: topic for topic in SYSTEM_TOPICS if topic.name not in topics}
        self._file = TopicsFile(topics, found.data_version)
        if missing:
            self._file = self._with(missing)
            topics_file.save(self._fs, self._data_dir, self._file)
        self.set_apart = SetApart.load(self._fs, self._data_dir, self._file.topics.values())
        self._names = sorted(self._file.topics)
        for topic in self._file.topics.values():
            self._put(self.table, topic)

    @property
    def topic_count(self) -> int:
        """Number of topics, the store's own included."""
        return len(self._names)

    def get(self, name: str, *, field: str = "name") -> TopicConfig:
        """Return a topic, also of a name that only RocketMQ gives. Raises BadTopicName and TopicNotFound."""
        topic = self._file.topics.get(name)
        if topic is None:
            check_topic_name(name, field)
            raise TopicNotFound(name, field=field)
        return topic

    def find(self, name: str) -> TopicConfig | None:
        """Return a topic, or None."""
        return self._file.topics.get(name)

    def list_after(self, name: str, count: int, *, include_system: bool) -> list[TopicConfig]:
        """Return up to `count` topics whose names come after this one, sorted by name."""
        found: list[TopicConfig] = []
        for index in range(bisect.bisect_right(self._names, name), len(self._names)):
            if len(found) == count:
                break
            if include_system or not is_system_topic(self._names[index]):
                found.append(self._file.topics[self._names[index]])
        return found

    async def create(
        self, name: str, *, read_queue_count: int, write_queue_count: int, is_readable: bool, is_writable: bool
    ) -> TopicConfig:
        """Make a topic, durably; a queue count of 0 is the default.

        Raises TopicExists, TopicSetApart, BadTopicName and BadArgument.
        """
        check_topic_name(name, "name")
        self._check_served(name, "name")
        topic = TopicConfig(
            name=name,
            read_queue_count=self._check_count(read_queue_count or self._default_queue_count, "read_queue_count"),
            write_queue_count=self._check_count(write_queue_count or self._default_queue_count, "write_queue_count"),
            permission=permission_of(is_readable=is_readable, is_writable=is_writable),
        )
        await uninterrupted(self._create(topic))
        return topic

    async def update(
        self,
        name: str,
        *,
        read_queue_count: int | None,
        write_queue_count: int | None,
        is_readable: bool | None,
        is_writable: bool | None,
    ) -> TopicConfig:
        """Change a topic, durably; None leaves a value as it is.

        Raises TopicNotFound, TopicForbidden, TopicSetApart and BadArgument.
        """

        def change(old: TopicConfig) -> TopicConfig:
            return replace(
                old,
                read_queue_count=old.read_queue_count
                if read_queue_count is None
                else self._check_count(read_queue_count, "read_queue_count", known=old.read_queue_count),
                write_queue_count=old.write_queue_count
                if write_queue_count is None
                else self._check_count(write_queue_count, "write_queue_count", known=old.write_queue_count),
                permission=permission_of(
                    is_readable=old.is_readable if is_readable is None else is_readable,
                    is_writable=old.is_writable if is_writable is None else is_writable,
                ),
            )

        return await uninterrupted(self._update(name, change))

    async def delete(self, name: str) -> None:
        """Forget a topic, durably; its counters stay. Raises TopicNotFound, TopicForbidden and TopicSetApart."""
        await uninterrupted(self._delete(name))

    def trial(self, names: Iterable[str], *, field: str) -> tuple[list[TopicConfig], TopicTable]:
        """The topics that these names lack, and a table with all of them, in which a batch can be tried.

        Nothing of it stays: the table of the log never forgets a topic. Raises BadArgument when there are too many, and
        TopicSetApart.
        """
        count = self._default_queue_count
        missing = [
            TopicConfig(name=name, read_queue_count=count, write_queue_count=count)
            for name in names
            if name not in self._file.topics
        ]
        for topic in missing:
            self._check_served(topic.name, field)
        self._check_room(missing, field)
        table = TopicTable()
        known = [self._file.topics[name] for name in (SCHEDULE_TOPIC, *names) if name in self._file.topics]
        for topic in [*missing, *known]:
            self._put(table, topic)
            for counter in self.table.counters_of(topic.name.encode()):
                table.set_next_queue_offset(*counter)
        return missing, table

    async def create_missing(self, topics: Iterable[TopicConfig], *, field: str) -> None:
        """Make those of the topics that nobody made meanwhile, durably. Raises BadArgument when there are too many."""
        await uninterrupted(self._create_missing(list(topics), field=field))

    async def finish(self) -> None:
        """Wait for the changes that are under way, whose callers may be gone."""
        async with self._change:
            pass

    async def _create(self, topic: TopicConfig) -> None:
        async with self._change:
            if topic.name in self._file.topics:
                raise TopicExists(topic.name)
            await self._add([topic], field="name")

    async def _create_missing(self, topics: list[TopicConfig], *, field: str) -> None:
        async with self._change:
            missing = [topic for topic in topics if topic.name not in self._file.topics]
            if missing:
                await self._add(missing, field=field)

    async def _update(self, name: str, change: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
        async with self._change:
            old = self.get(name)
            if is_system_topic(name):
                raise TopicForbidden(name, permission="change", field="name")
            self._check_served(name, "name")
            topic = change(old)
            if topic.write_queue_count > old.write_queue_count:
                self._check_queue_room(topic.write_queue_count - old.write_queue_count, "write_queue_count")
            if topic != old:
                await self._save(self._with({name: topic}))
                self._put(self.table, topic)
        return topic

    async def _delete(self, name: str) -> None:
        async with self._change:
            self.get(name)
            if is_system_topic(name):
                raise TopicForbidden(name, permission="delete", field="name")
            self._check_served(name, "name")
            topics = {key: topic for key, topic in self._file.topics.items() if key != name}
            await self._save(TopicsFile(topics, self._next_version()))
            self._names.remove(name)
            self.table.remove_topic(name.encode())

    async def _add(self, topics: list[TopicConfig], *, field: str) -> None:
        self._check_room(topics, field)
        await self._save(self._with({topic.name: topic for topic in topics}))
        for topic in topics:
            bisect.insort(self._names, topic.name)
            self._put(self.table, topic)

    def _check_served(self, name: str, field: str) -> None:
        if why := self.set_apart.why(name):
            raise TopicSetApart(name, why=why, field=field)

    def _check_room(self, topics: list[TopicConfig], field: str) -> None:
        """Refuse topics, none of which is there, that would be too many or have too many queues."""
        count = self.topic_count + len(topics)
        if count > self._topic_count_max:
            raise BadArgument("the store has too many topics", field=field, value=count, limit=self._topic_count_max)
        self._check_queue_room(sum(topic.write_queue_count for topic in topics), field)

    def _check_queue_room(self, new_count: int, field: str) -> None:
        count = self.table.queue_count + new_count
        if new_count and count > self._queue_count_max:
            reason = "the topics of the store have too many queues (queue_count_max)"
            raise BadArgument(reason, field=field, value=count, limit=self._queue_count_max)

    def _check_count(self, value: int, field: str, *, known: int = 0) -> int:
        """The value, if a topic that has `known` queues may be given so many."""
        most = max(self._topic_queue_count_max, known)
        if not 1 <= value <= most:
            limit = 1 if value < 1 else most
            raise BadArgument(f"a topic has 1 to {most} queues, not {value}", field=field, value=value, limit=limit)
        return value

    def _put(self, table: TopicTable, topic: TopicConfig) -> None:
        """Tell the kernel. The schedule topic has a queue for each delay level, whatever the file says."""
        name = topic.name.encode()
        queue_count = topic.write_queue_count
        if topic.name == SCHEDULE_TOPIC:
            queue_count = max(queue_count, self._delay_level_count)
        if queue_count == 0 or not 0 < len(name) <= TOPIC_SIZE_BYTES_MAX:
            return  # RocketMQ may keep such topics; nothing can be appended to them
        is_writable = topic.is_writable and not is_system_topic(topic.name) and not self.set_apart.why(topic.name)
        table.put_topic(name, write_queue_count=queue_count, is_writable=is_writable)

    def _with(self, topics: dict[str, TopicConfig]) -> TopicsFile:
        return TopicsFile({**self._file.topics, **topics}, self._next_version())

    def _next_version(self) -> DataVersion:
        version = self._file.data_version
        return replace(version, counter=version.counter + 1, timestamp_ms=self._clock.now_ms())

    async def _save(self, file: TopicsFile) -> None:
        await asyncio.to_thread(topics_file.save, self._fs, self._data_dir, file)
        self._file = file
