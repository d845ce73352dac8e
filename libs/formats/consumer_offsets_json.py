# SPDX-License-Identifier: Apache-2.0
"""consumerOffset.json: how far each group has consumed each queue. Spec: docs/formats/config_files.md section 3."""

from dataclasses import dataclass, field

from libs.formats import config_json
from libs.formats.config_json import DataVersion
from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX

SEPARATOR = "@"


@dataclass(frozen=True, slots=True)
class ConsumerOffsetsFile:
    """The whole file: (topic, group) to queue id to the next queue offset to consume. 4.x has no data version."""

    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = field(default_factory=DataVersion)


def loads(text: str) -> ConsumerOffsetsFile:
    """The file's content, integer keys with or without quotes; raises BadField or BadLength."""
    root = config_json.parse_object(text)
    table = config_json.mapping(root.get("offsetTable", {}), "offsetTable")
    offsets = {_topic_and_group(name): _queues(name, value) for name, value in table.items()}
    version = root.get("dataVersion")
    return ConsumerOffsetsFile(offsets, None if version is None else DataVersion.from_json(version))


def dumps(file: ConsumerOffsetsFile) -> str:
    """The file as RocketMQ writes it, integer keys without quotes."""
    table = {f"{topic}{SEPARATOR}{group}": queues for (topic, group), queues in file.offsets.items()}
    version = {} if file.data_version is None else {"dataVersion": file.data_version.to_json()}
    return config_json.dumps({**version, "offsetTable": table})


def _topic_and_group(name: str) -> tuple[str, str]:
    topic, separator, group = name.partition(SEPARATOR)
    if not topic or not separator or not group or SEPARATOR in group:
        raise BadField(position=0, reason=f"{name[:80]!r} is not topic@group", field="offsetTable")
    return topic, group


def _queues(name: str, value: object) -> dict[int, int]:
    queues = config_json.mapping(value, name)
    return {
        config_json.integer_key(key, "queue id", most=INT32_MAX): config_json.integer(offset, "queue offset")
        for key, offset in queues.items()
    }
