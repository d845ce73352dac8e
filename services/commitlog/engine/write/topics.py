# SPDX-License-Identifier: Apache-2.0
"""TopicRegistry: the topics of the store, in memory, on the disk and in the kernel's table.

Invariants: a change is on the disk, durably, before anything relies on it. At most one change runs at a time. The
kernel's table forbids appends to the store's own topics and to topics that are set apart, even if the file permits them
to RocketMQ.
Callers: the loop that owns the log; changes wait for a worker thread that writes the file.
Not handled: counters of queues, which live in the kernel's table and outlast their topic.
Layout: docs/formats/config_files.md section 2; RocketMQ's counterpart is TopicConfigManager.
"""

import asyncio
import bisect
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topic_share import TopicShare
from libs.formats.config.topics_json import (
    PERMISSION_READ,
    PERMISSION_WRITE,
    TopicConfig,
    TopicsFile,
)
from libs.formats.limits import TOPIC_SIZE_BYTES_MAX
from libs.formats.names import is_appendable_topic
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.set_apart import why_by_attributes
from libs.formats.state.system_topics import (
    INTERNAL_TOPICS,
    SYSTEM_NAMES,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    is_system_topic,
)
from libs.formats.state.topic_journal import TopicChange
from libs.kernel.append.topic_table import REDIRECTS, TopicTable
from libs.log.state.set_apart import SetApart
from libs.log.state.topic_begins import TopicBegins
from libs.log.state.topic_store import TopicStore
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import BadArgument, BadTopicName, TopicNotFound, TopicSetApart
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.write.recent_topic_changes import RecentTopicChanges
from services.commitlog.engine.write.topic_values import with_retention_of, with_share
from services.commitlog.errors import TopicExists, TopicForbidden

_SHOWN_SIZE_MAX = 80


class TopicsDiffer(Exception):
    """A change that continues other topics than these."""

    def __init__(self, *, mine: int, theirs: int) -> None:
        super().__init__(f"a change of topics of version {theirs}, and the topics here have version {mine}")


def check_topic_name(name: str) -> None:
    """Raise BadTopicName for a name that no topic may have (libs/formats/names.py)."""
    size, shown, limit = len(name.encode()), name[:_SHOWN_SIZE_MAX], TOPIC_SIZE_BYTES_MAX
    if not name:
        raise BadTopicName("a topic name is missing", field="name", value="", limit=limit)
    if size > limit:
        raise BadTopicName(f"a topic name of {size} bytes is too long", field="name", value=size, limit=limit)
    if not is_appendable_topic(name):
        reason = f"a topic name has letters, digits, `_`, `-`, `%` and `|` only, not {shown!r}"
        raise BadTopicName(reason, field="name", value=shown, limit="[%|a-zA-Z0-9_-]")


class TopicRegistry:
    """The topics of the store by name. Call `load` first."""

    def __init__(self, fs: Fs, config: CommitLogConfig, clock: Clock) -> None:
        self.table = TopicTable()
        self.store = TopicStore(fs, config.data_dir)
        """The topics on the disk."""
        self.set_apart = SetApart()
        """Topics that callers can neither append to, change, create nor delete here."""
        self.begins = TopicBegins(fs, config.data_dir)
        """Where the messages of deleted and purged topics begin."""
        self.change_count = 1
        """How often topics or begins have changed since the process began, plus 1 for the state at its begin."""
        self.recent = RecentTopicChanges()
        """The changes that a follower may lack."""
        self._fs = fs
        self._config = config
        self._clock = clock
        self._names: list[str] = []
        self._with_retention: tuple[int, list[TopicConfig]] = (0, [])
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Read the files, or the backup if topics.json is missing or damaged, and add the store's own topics. Blocks.

        Raises ConfigFileDamaged when there are files and none can be read: a store without its topics would accept
        messages for queues that do not exist. Raises NewerVersion.
        """
        self.store.load()
        missing = {topic.name: topic for topic in SYSTEM_TOPICS if topic.name not in self._topics}
        if missing:
            self.store.create(missing, self._next_version())
        self.set_apart = SetApart.load(self._fs, self._config.data_dir, self._topics.values())
        self._names = sorted(self._topics)
        for topic in self._topics.values():
            self._put(self.table, topic)
        self.begins.load()

    @property
    def file(self) -> TopicsFile:
        """A copy of all topics."""
        return self.store.file()

    @property
    def _topics(self) -> Mapping[str, TopicConfig]:
        return self.store.topics

    @property
    def topic_count(self) -> int:
        """Number of topics, the store's own included."""
        return len(self._names)

    @property
    def user_topic_count(self) -> int:
        """Number of topics without the topics that the store itself needs."""
        bounds = (SYSTEM_TOPIC_PREFIX, f"{SYSTEM_TOPIC_PREFIX}\uffff")
        first, end = (bisect.bisect_left(self._names, bound) for bound in bounds)
        named = [name for name in SYSTEM_NAMES if not name.startswith(SYSTEM_TOPIC_PREFIX)]
        return len(self._names) - (end - first) - sum(name in self._topics for name in named)

    def get(self, name: str) -> TopicConfig:
        """Return a topic, also if only RocketMQ permits its name. Raises BadTopicName and TopicNotFound."""
        topic = self._topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFound(name, field="name")
        return topic

    def find(self, name: str) -> TopicConfig | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def write_queue_count(self, name: str) -> int:
        """Return the number of a topic's queues for appends, or the number that a new topic would get now."""
        topic = self.find(name)
        return self._config.default_queue_count if topic is None else topic.write_queue_count

    def queue_count(self, topic: TopicConfig) -> int:
        """Return the number of queues for readers: the larger of both counts, or more if a later queue had messages."""
        counters = self.table.counters_of(topic.name.encode())
        used = max((queue_id + 1 for _, queue_id, _ in counters), default=0)
        return max(topic.read_queue_count, topic.write_queue_count, used)

    def list_after(self, name: str, count: int, *, include_system: bool) -> list[TopicConfig]:
        """Return up to `count` topics whose names come after this one, sorted by name."""
        found: list[TopicConfig] = []
        for index in range(bisect.bisect_right(self._names, name), len(self._names)):
            if len(found) == count:
                break
            if include_system or not is_system_topic(self._names[index]):
                found.append(self._topics[self._names[index]])
        return found

    async def create(
        self,
        name: str,
        *,
        read_queue_count: int = 0,
        write_queue_count: int = 0,
        is_readable: bool = True,
        is_writable: bool = True,
        retention_hours: int = 0,
        retention_bytes: int = 0,
        share: TopicShare | None = None,
    ) -> TopicConfig:
        """Create a topic, durably. A queue count of 0 is the default, a retention of 0 no rule of its own.

        Without a share all its queues are here.

        Raises TopicExists, TopicSetApart, BadTopicName and BadArgument.
        """
        check_topic_name(name)
        self._check_served(name, "name")
        default = self._config.default_queue_count
        topic = TopicConfig(
            name=name,
            read_queue_count=self._checked_count(read_queue_count or default, "read_queue_count"),
            write_queue_count=self._checked_count(write_queue_count or default, "write_queue_count"),
            permission=PERMISSION_READ * is_readable | PERMISSION_WRITE * is_writable,
        )
        topic = with_share(with_retention_of(topic, retention_hours, retention_bytes), share)
        if not await uninterrupted(self._add_missing([topic], field="name")):
            raise TopicExists(name)
        return topic

    async def update(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        is_readable: bool | None = None,
        is_writable: bool | None = None,
        retention_hours: int | None = None,
        retention_bytes: int | None = None,
        share: TopicShare | None = None,
    ) -> TopicConfig:
        """Change a topic, durably. None leaves a value unchanged.

        Raises TopicNotFound, TopicForbidden, TopicSetApart, BadArgument and ShareOutdated.
        """

        def changed(old: TopicConfig) -> TopicConfig:
            reads = old.is_readable if is_readable is None else is_readable
            writes = old.is_writable if is_writable is None else is_writable
            topic = replace(
                with_retention_of(old, retention_hours, retention_bytes),
                read_queue_count=self._checked_count(read_queue_count, "read_queue_count", known=old.read_queue_count),
                write_queue_count=self._checked_count(
                    write_queue_count, "write_queue_count", known=old.write_queue_count
                ),
                permission=PERMISSION_READ * reads | PERMISSION_WRITE * writes,
            )
            if share is not None and old.share is None:
                self._check_has_all(share, old)
            return with_share(topic, share)

        return await uninterrupted(self._update(name, changed))

    async def delete(self, name: str) -> None:
        """Delete a topic, durably. Readers no longer get its messages. Its counters stay.

        Raises TopicNotFound, TopicForbidden and TopicSetApart.
        """
        await uninterrupted(self._delete(name))

    async def purge(self, name: str) -> int:
        """Take all messages of a topic away from readers, durably. The topic and its counters stay.

        Returns the topic's begin, 0 if it never had a message. Raises TopicNotFound, TopicForbidden and TopicSetApart.
        """
        return await uninterrupted(self._purge(name))

    async def expire(self, begins: Mapping[str, int]) -> int:
        """Raise the begins of existing topics, durably. Returns how many rose."""
        return await uninterrupted(self._expire(begins))

    def with_retention(self) -> list[TopicConfig]:
        """Return the topics with a rule of retention of their own, sorted by name."""
        if self._with_retention[0] != self.change_count:
            topics = (self._topics[name] for name in self._names)
            ruled = [topic for topic in topics if topic.attributes and (topic.retention_hours or topic.retention_bytes)]
            self._with_retention = self.change_count, ruled
        return self._with_retention[1]

    def trial(self, names: Iterable[str], *, field: str) -> tuple[list[TopicConfig], TopicTable]:
        """Return the missing topics of these names, and a table with all named topics, in which a batch can be tried.

        The log's own table stays unchanged, because it never forgets a topic. Raises BadArgument when there are too
        many topics, and TopicSetApart.
        """
        count = self._config.default_queue_count
        missing = [
            TopicConfig(name=name, read_queue_count=count, write_queue_count=count)
            for name in names
            if name not in self._topics
        ]
        for topic in missing:
            self._check_served(topic.name, field)
        self._check_room(missing, field)
        table = TopicTable()
        known = [self._topics[name] for name in (*REDIRECTS, *names) if name in self._topics]
        for topic in [*missing, *known]:
            self._put(table, topic)
            for counter in self.table.counters_of(topic.name.encode()):
                table.set_next_queue_offset(*counter)
        return missing, table

    async def create_missing(self, topics: list[TopicConfig], *, field: str) -> None:
        """Create the topics that are still missing, durably. Raises BadArgument when there are too many."""
        await uninterrupted(self._add_missing(topics, field=field))

    async def create_internal_topics(self) -> None:
        """Create the topics of the store's own state, durably, unless they exist."""
        if missing := [name for name in INTERNAL_TOPICS if name not in self._topics]:
            topics = [
                TopicConfig(name=name, read_queue_count=1, write_queue_count=1, permission=PERMISSION_READ)
                for name in missing
            ]
            await uninterrupted(self._add_missing(topics, field="name"))

    async def replace(self, file: TopicsFile) -> None:
        """Replace the topics by the topics of another store, durably."""
        await uninterrupted(self._replace(file))

    async def follow(self, change: TopicChange) -> None:
        """Make a change that another store has made, durably. Raises TopicsDiffer if it continues other topics."""
        await uninterrupted(self._follow(change))

    async def replace_begins(self, begins: Mapping[str, int]) -> None:
        """Replace the begins by the begins of another store, durably. They come before the topics."""
        await uninterrupted(self._replace_begins(begins))

    async def finish(self) -> None:
        """Wait for the current changes and for a write of topics.json. Their callers may be gone."""
        async with self._changing:
            await self.store.finish()

    async def _add_missing(self, topics: list[TopicConfig], *, field: str) -> bool:
        """Create the missing topics among these. Returns whether there were any."""
        async with self._changing:
            missing = {topic.name: topic for topic in topics if topic.name not in self._topics}
            if missing:
                self._check_room(missing.values(), field)
                await self._change(put=missing)
                for topic in missing.values():
                    bisect.insort(self._names, topic.name)
                    self._put(self.table, topic)
            return bool(missing)

    async def _replace_begins(self, begins: Mapping[str, int]) -> None:
        async with self._changing:
            if begins != self.begins.by_topic:
                await self.begins.replace(begins)

    async def _replace(self, file: TopicsFile) -> None:
        async with self._changing:
            if file == self.file:
                return
            before = dict(self._topics)
            await self.store.replace(file)
            self.change_count += 1
            self.recent.clear()
            self._learn_set_apart(file.topics.values())
            self._names = sorted(file.topics)
            for name in before.keys() - file.topics.keys():
                self.table.remove_topic(name.encode())
            for topic in file.topics.values():
                if before.get(topic.name) != topic:
                    self._put(self.table, topic)

    async def _follow(self, change: TopicChange) -> None:
        async with self._changing:
            if change.before != self.store.version:
                raise TopicsDiffer(mine=self.store.version.counter, theirs=change.before.counter)
            if change.put or change.removed:
                new = change.put.keys() - self._topics.keys()
                gone = [name for name in change.removed if name in self._topics]
                await self.store.change(change)
                self.change_count += 1
                self.recent.clear()
                self._learn_set_apart(change.put.values())
                for name in gone:
                    self._names.remove(name)
                    self.table.remove_topic(name.encode())
                for name in new:
                    bisect.insort(self._names, name)
                for topic in change.put.values():
                    self._put(self.table, topic)

    def _learn_set_apart(self, topics: Iterable[TopicConfig]) -> None:
        reasons = {topic.name: why_by_attributes(topic.attributes) for topic in topics}
        self.set_apart.learn({name: why for name, why in reasons.items() if why})

    async def _update(self, name: str, changed: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
        async with self._changing:
            old = self._changeable(name, "change")
            topic = changed(old)
            if topic.write_queue_count > old.write_queue_count:
                self._check_queue_room(topic.write_queue_count - old.write_queue_count, "write_queue_count")
            if topic != old:
                await self._change(put={name: topic})
                self._put(self.table, topic)
        return topic

    async def _delete(self, name: str) -> None:
        async with self._changing:
            self._changeable(name, "delete")
            await self.begins.announce(name)
            await self._change(removed=(name,))
            self._names.remove(name)
            self.table.remove_topic(name.encode())
            await self._note_begin(name)

    async def _purge(self, name: str) -> int:
        async with self._changing:
            self._changeable(name, "purge")
            await self._note_begin(name)
            return self.begins.by_topic.get(name, 0)

    async def _expire(self, begins: Mapping[str, int]) -> int:
        async with self._changing:
            known = self.begins.by_topic
            risen = {
                name: begin
                for name, begin in begins.items()
                if begin > known.get(name, 0) and name in self._topics and not is_system_topic(name)
            }
            if risen:
                await self.begins.replace({**known, **risen})
                self._count(TopicChange(self.store.version, self.store.version))
            return len(risen)

    async def _note_begin(self, name: str) -> None:
        """Note that the topic's messages end here, and count it, so that followers have the begins, too."""
        await self.begins.note(name, had_messages=bool(self.table.counters_of(name.encode())))
        self._count(TopicChange(self.store.version, self.store.version))

    def _changeable(self, name: str, permission: str) -> TopicConfig:
        """Return a topic that callers may change. Raises TopicNotFound, TopicForbidden and TopicSetApart."""
        topic = self.get(name)
        if is_system_topic(name):
            raise TopicForbidden(name, permission=permission, field="name")
        self._check_served(name, "name")
        return topic

    def _check_served(self, name: str, field: str) -> None:
        if why := self.set_apart.why(name):
            raise TopicSetApart(name, why=why, field=field)

    def _check_room(self, topics: Collection[TopicConfig], field: str) -> None:
        """Refuse new topics if they are too many or have too many queues."""
        count, limit = self.topic_count + len(topics), self._config.topic_count_max
        if count > limit:
            raise BadArgument("the store has too many topics", field=field, value=count, limit=limit)
        self._check_queue_room(sum(topic.write_queue_count for topic in topics), field)

    def _check_queue_room(self, new_count: int, field: str) -> None:
        count, limit = self.table.queue_count + new_count, self._config.queue_count_max
        if new_count and count > limit:
            reason = "the topics of the store, with those that were deleted, have too many queues (queue_count_max)"
            raise BadArgument(reason, field=field, value=count, limit=limit)

    def _checked_count(self, value: int | None, field: str, *, known: int = 0) -> int:
        """Return a valid queue count for a topic that has `known` queues, or `known` for the value None."""
        if value is None:
            return known
        count_max = max(self._config.topic_queue_count_max, known)
        if not 1 <= value <= count_max:
            limit = 1 if value < 1 else count_max
            raise BadArgument(
                f"a topic has 1 to {count_max} queues, not {value}", field=field, value=value, limit=limit
            )
        return value

    def _check_has_all(self, share: TopicShare, topic: TopicConfig) -> None:
        """Raise BadArgument if a topic has messages in a queue that its first share leaves out: groups skip it then.

        Queues above the topic's number are of a former topic with this name.
        """
        own = {queue.queue_id for queue in share.queues}
        for _, queue_id, _ in self.table.counters_of(topic.name.encode()):
            if queue_id not in own and queue_id < topic.write_queue_count:
                raise BadArgument(f"queue {queue_id} has messages, and is not in the share", field="share")

    def _put(self, table: TopicTable, topic: TopicConfig) -> None:
        """Put a topic into the kernel's table. The schedule topic always has a queue for each delay level."""
        name = topic.name.encode()
        queue_count = topic.write_queue_count
        if topic.name == SCHEDULE_TOPIC:
            queue_count = max(queue_count, len(self._config.delay_levels_ms()))
        if queue_count == 0 or not 0 < len(name) <= TOPIC_SIZE_BYTES_MAX:
            return  # RocketMQ may keep such topics; appends to them are refused
        is_writable = topic.is_writable and not is_system_topic(topic.name) and not self.set_apart.why(topic.name)
        is_internal = topic.name in INTERNAL_TOPICS
        share = None if self.set_apart.why(topic.name) else topic.share
        table.put_topic(
            name,
            write_queue_count=queue_count,
            is_writable=is_writable,
            is_internal=is_internal,
            own_queue_ids=None if share is None else [queue.queue_id for queue in share.queues],
            sealed_queue_ids=() if share is None else share.sealed_ids,
        )

    def _next_version(self) -> DataVersion:
        version = self.store.version
        return replace(version, counter=version.counter + 1, timestamp_ms=self._clock.now_ms())

    async def _change(self, *, put: Mapping[str, TopicConfig] | None = None, removed: tuple[str, ...] = ()) -> None:
        """Make a change durable and count it. Raises OSError."""
        change = TopicChange(self.store.version, self._next_version(), dict(put or {}), removed)
        await self.store.change(change)
        self._count(change)

    def _count(self, change: TopicChange) -> None:
        self.change_count += 1
        self.recent.note(self.change_count, change)
