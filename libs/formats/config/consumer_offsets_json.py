# SPDX-License-Identifier: Apache-2.0
"""consumerOffset.json: each group's offset in each queue. Spec: docs/formats/config_files.md section 3.

`dumps` returns a whole file. Entries may also be encoded separately and reused (`encode_entry`), and then assembled.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from libs.formats.config import config_json
from libs.formats.config.config_json import DataVersion
from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX

SEPARATOR = "@"
ENTRY_SEPARATOR = b",\n\t\t"

OFFSET_SIZE_BYTES_MAX = len(',\n\t\t\t2147483647:-9223372036854775808,\n\t\t"@":{\n\t\t}')
"""Most bytes of an offset in the file, without the names of its topic and its group."""


class ConsumerOffsetsFile(Struct, frozen=True):
    """The whole file: (topic, group) to queue id to the next queue offset to consume. 4.x has no data version."""

    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = field(default_factory=DataVersion)


def loads(text: str) -> ConsumerOffsetsFile:
    """Return the file's content. Its integer keys may have quotes. Raises BadField or BadLength."""
    root = config_json.parse_object(text)
    table = config_json.mapping(root.get("offsetTable", {}), "offsetTable")
    offsets = {_topic_and_group(name): _queues(name, value) for name, value in table.items()}
    version = root.get("dataVersion")
    return ConsumerOffsetsFile(offsets, None if version is None else DataVersion.from_json(version))


def dumps(file: ConsumerOffsetsFile) -> str:
    """Return the file as RocketMQ writes it, integer keys without quotes."""
    entries = [encode_entry(topic, group, [encode_offsets(queues)]) for (topic, group), queues in file.offsets.items()]
    return assemble(file.data_version, entries).decode()


def encode_offsets(queues: Mapping[int, int]) -> bytes:
    """Return offsets of an entry as text, by queue id. The text is empty without offsets."""
    return ",\n\t\t\t".join([f"{queue_id}:{queue_offset}" for queue_id, queue_offset in queues.items()]).encode()


def encode_entry(topic: str, group: str, offsets: Sequence[bytes]) -> bytes:
    """Return an entry of `offsetTable` with offsets from `encode_offsets`."""
    lines = b",\n\t\t\t".join(offsets)
    inner = b"\n\t\t\t" + lines + b"\n\t\t" if lines else b""
    return config_json.dumps(topic + SEPARATOR + group).encode() + b":{" + inner + b"}"


def assemble(version: DataVersion | None, entries: Sequence[bytes]) -> bytes:
    """Return the file of these entries. An item may be several entries, joined with ENTRY_SEPARATOR."""
    parts = {} if version is None else {"dataVersion": version.to_json()}
    empty = config_json.dumps({**parts, "offsetTable": {}}).encode()
    if not entries:
        return empty
    head, tail = empty.removesuffix(b"}\n}") + b"\n\t\t", b"\n\t}\n}"
    return b"".join((head, ENTRY_SEPARATOR.join(entries), tail))


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
