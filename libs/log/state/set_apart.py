# SPDX-License-Identifier: Apache-2.0
"""SetApart: which topics of a store are set apart, and why.

The attributes in topics.json decide. RocketMQ's directories decide about a topic that topics.json lacks: topics.json
may be lost, or the topic was deleted but not its stored data. Light queues are known by their names.
Not handled: the consequences for records, files and calls. Rules: libs/formats/state/set_apart.py.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from libs.formats import store_layout
from libs.formats.config.topics_json import TopicConfig
from libs.formats.state import set_apart
from libs.log.state import topics_file
from libs.machine.fs import Fs


class SetApart:
    """The reasons by topic. Only `learn` changes them."""

    def __init__(self, reasons: Mapping[str, str] | None = None, *, has_light_queues: bool = False) -> None:
        self.reasons = dict(reasons or {})
        """The reason by topic, without light queues."""
        self._has_light_queues = has_light_queues
        self._own = self.reasons

    @classmethod
    def load(cls, fs: Fs, data_dir: Path, topics: Iterable[TopicConfig] | None = None) -> Self:
        """Return a data directory's reasons, by `topics` or by its topics.json. Blocks. Raises ConfigFileDamaged."""
        if topics is None:
            topics = topics_file.load(fs, data_dir).topics.values()
        by_attributes = {topic.name: set_apart.why_by_attributes(topic.attributes) for topic in topics}
        found = {**_by_directories(fs, data_dir), **by_attributes}
        queues = data_dir / store_layout.QUEUES
        names = fs.list(queues) if fs.is_directory(queues) else []
        return cls(
            {topic: reason for topic, reason in found.items() if reason},
            has_light_queues=any(map(set_apart.why_by_name, names)),
        )

    @property
    def has_files(self) -> bool:
        """Whether RocketMQ has, or may have, files here that only RocketMQ can read."""
        return bool(self.reasons) or self._has_light_queues

    def why(self, topic: str) -> str:
        """Return why a topic is set apart, or an empty text if it is not set apart."""
        return self.reasons.get(topic) or set_apart.why_by_name(topic)

    def learn(self, reasons: Mapping[str, str]) -> None:
        """Replace the learned reasons by `reasons`. The reasons of the construction remain."""
        self.reasons = {**reasons, **self._own}


def _by_directories(fs: Fs, data_dir: Path) -> dict[str, str]:
    """Return the topics whose RocketMQ files are of kinds that are not served. Empty directories are ignored."""
    return {
        topic: reason
        for name, reason in set_apart.DIRECTORIES.items()
        if fs.is_directory(data_dir / name)
        for topic in fs.list(data_dir / name)
        if fs.is_directory(data_dir / name / topic) and fs.list(data_dir / name / topic)
    }
