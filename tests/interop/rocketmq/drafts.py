# SPDX-License-Identifier: Apache-2.0
"""Messages with every field that a record can have, made from a seed, and in the order in which stores get them."""

import random
from collections.abc import Iterator

import msgspec

from tests.interop.rocketmq.stored import COMMIT, PREPARED, ROLLBACK, TRANSACTION_MASK, Draft

V2_TOPIC = "V2-" + "l" * 197
"""A topic so long that RocketMQ 5 writes a record of version 2, which 4.9 does not know. Reput refuses to write it."""
DELAY_LEVEL = "18"
"""Two hours, so that no store delivers it while a test runs."""

TOPICS = ("orders", "%RETRY%billing", "a|b_c-9", "t" * 127)
TAGS = ("TagA", "标签", "shipment", "🛫", "polygenelubricants")
HOSTS = ("c0a8010a:50123", "20010db800000000000000000000000a:65535", "7f000001:1", "0a000001:0")
ODD = {
    "user": "wert ✈ 🛫",
    "é": "ü\t\n\"'\\{}",
    "CLUSTER": "DefaultCluster",
    "a": "\x01b\x01",
    "MSG_REGION": "\x00\x7f\ufffd",
}
SYS_FLAGS = (0, 0, 0x1, 0x1 | 0x300, 0x2, 0x100, COMMIT, 0)
TRANSACTION_EVERY = 37
DELAY_EVERY = 23
LARGE_BODY_EVERY = 151
FLAG_FACTOR = 0x9E3779B1  # odd: each serial number has a flag of its own, of either sign
BATCH_SIZES = (1, 1, 2, 7, 30)


class Drafts:
    """An endless supply. Serial numbers continue from call to call, so flags and unique keys never repeat."""

    def __init__(self, seed: int, *, store_host: str = "7f000001:10911", large_body_bytes: int = 60_000) -> None:
        self._random = random.Random(seed)
        self._store_host = store_host
        self._large_body_bytes = large_body_bytes
        self._serial = 0

    def take(self, count: int, *, topic: str | None = None) -> list[Draft]:
        """Return the next messages. Messages of a given topic have queue 1, no delay and no transaction."""
        found = []
        for _ in range(count):
            self._serial += 1
            found.append(self._draft(self._serial, topic))
        return found

    def batch(self, count: int) -> list[Draft]:
        """Return messages for a batch of RocketMQ.

        They have the fields in common that a batch has only once, and have no transaction.
        """
        parts = self.take(count, topic="batched")
        common = {name: getattr(parts[0], name) for name in ("born_time_ms", "born_host", "reconsume_times")}
        return [msgspec.structs.replace(part, **common) for part in parts]

    def runs(self, count: int) -> Iterator[list[Draft]]:
        """Return about `count` messages in batches of several sizes."""
        while count > 0:
            size = self._random.choice(BATCH_SIZES)
            count -= size
            yield self.take(size)

    def _draft(self, serial: int, topic: str | None) -> Draft:
        flag = (serial * FLAG_FACTOR + 2**31) % 2**32 - 2**31
        properties = self._properties(serial)
        sys_flag = SYS_FLAGS[serial % len(SYS_FLAGS)] if topic is None else 0
        if topic is None and serial % TRANSACTION_EVERY == 0:
            sys_flag = (PREPARED, ROLLBACK)[serial // TRANSACTION_EVERY % 2]
        if topic is None and serial % DELAY_EVERY == 0 and not sys_flag & TRANSACTION_MASK:
            properties["DELAY"] = DELAY_LEVEL
        return Draft(
            topic=topic or TOPICS[serial % len(TOPICS)],
            queue_id=1 if topic else self._random.choice((0, 0, 1, 2, 3, serial % 64)),
            body=self._body(serial),
            properties=properties,
            flag=flag,
            sys_flag=sys_flag,
            born_time_ms=1_700_000_000_000 + serial,
            born_host=HOSTS[serial % len(HOSTS)],
            store_host=self._store_host,
            reconsume_times=serial % 5,
            prepared_transaction_offset=777 if sys_flag & TRANSACTION_MASK == COMMIT else 0,
        )

    def _body(self, serial: int) -> bytes:
        if serial % 11 == 0:
            return b""
        size = self._large_body_bytes if serial % LARGE_BODY_EVERY == 0 else self._random.randrange(1, 200)
        return self._random.randbytes(size)

    def _properties(self, serial: int) -> dict[str, str]:
        properties = {}
        if serial % 5:
            properties["TAGS"] = TAGS[serial % len(TAGS)]
        if serial % 3:
            properties["KEYS"] = f"key{serial // 40}" + f"  schlüssel🛫{serial} schlüssel🛫{serial}" * (serial % 7 == 0)
        if serial % 13 == 0:
            properties["KEYS"] = "polygenelubricants"
        if serial % 4:
            properties["UNIQ_KEY"] = f"C0A8010A1F9018B4AAC2{serial:012X}"
        if serial % 6 == 0:
            properties |= ODD
        if serial % 301 == 0:
            properties["long"] = "x" * 30_000
        return properties
