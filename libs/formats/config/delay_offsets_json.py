# SPDX-License-Identifier: Apache-2.0
"""delayOffset.json: the offset up to which the queue of each delay level is delivered.

Spec: docs/formats/config_files.md section 4. RocketMQ's counterpart is DelayOffsetSerializeWrapper.
"""

from msgspec import Struct, field

from libs.formats.config import config_json
from libs.formats.config.config_json import DataVersion
from libs.formats.limits import INT32_MAX


class DelayOffsetsFile(Struct, frozen=True):
    """The whole file: delay level, from 1, to the next queue offset to deliver. 4.x has no data version."""

    offsets: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = field(default_factory=DataVersion)


def loads(text: str) -> DelayOffsetsFile:
    """Return the file's content. Its integer keys may have quotes. Raises BadField or BadLength."""
    root = config_json.parse_object(text)
    table = config_json.mapping(root.get("offsetTable", {}), "offsetTable")
    offsets = {
        config_json.integer_key(key, "delay level", least=1, most=INT32_MAX): config_json.integer(
            value, "queue offset", least=0
        )
        for key, value in table.items()
    }
    version = root.get("dataVersion")
    return DelayOffsetsFile(offsets, None if version is None else DataVersion.from_json(version))


def dumps(file: DelayOffsetsFile) -> str:
    """Return the file as RocketMQ writes it, levels without quotes and ascending."""
    version = {} if file.data_version is None else {"dataVersion": file.data_version.to_json()}
    return config_json.dumps({**version, "offsetTable": dict(sorted(file.offsets.items()))})
