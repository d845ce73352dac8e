# SPDX-License-Identifier: Apache-2.0
"""Limits of the formats, with units, and the relations between them on which the code relies.

Values are RocketMQ 5.3's defaults unless a comment says otherwise. "Reput's" marks Reput's own limits. Settings may
lower some of the limits. No setting raises a limit above the largest value of its field.
Spec: docs/formats/commit_log.md section 8.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

TOPIC_SIZE_BYTES_MAX = 127
"""A V1 record stores the topic's size in a signed byte. Longer names are refused (checkBeforePutMessage)."""

STORED_TOPIC_SIZE_BYTES_MAX, STORED_QUEUE_ID_MAX = 255, INT32_MAX
"""Records of another store may have longer topics, and higher queue ids, than an append accepts."""

GROUP_SIZE_BYTES_MAX = 255
"""Longest name of a consumer group."""

PROPERTIES_SIZE_BYTES_MAX = INT16_MAX
"""The properties' size is a signed 16-bit field and includes the CRC property."""

TIMER_ROOM_BYTES, HALF_ROOM_BYTES = 256, 512
"""Bytes that a waiting message's properties leave free for properties that the store adds meanwhile. Reput's.

A message with a delivery time gets some 140 bytes when it is appended again. A half message gets as many when its
producer is asked, and it may have to wait for a delivery time when it is committed.
"""

CRC_PROPERTY_SIZE_BYTES = 20
"""`__CRC32#`, 0x01, ten digits, 0x02."""

BODY_SIZE_BYTES_MAX = 4 * MIB
"""Default of maxMessageSize."""

RECORD_SIZE_SLACK_BYTES = 64 * KIB
"""A whole record may be larger than the largest body by so much."""

RECORD_SIZE_BYTES_MIN = 91
"""A V1 record with two IPv4 hosts, and without body, topic and properties."""

RECORD_OVERHEAD_BYTES_MAX = RECORD_SIZE_BYTES_MIN + 24 + 1
"""Fixed bytes of a V2 record with two IPv6 hosts."""

SEGMENT_SIZE_BYTES = GIB
"""Default of mappedFileSizeCommitLog."""

SEGMENT_SIZE_BYTES_MAX = INT32_MAX
"""Positions in a segment are signed 32-bit numbers, and so is the size in a blank record."""

BLANK_SIZE_BYTES_MIN = 8
"""Every segment ends with at least so many filler bytes (END_FILE_MIN_BLANK_LENGTH)."""

BATCH_MESSAGE_COUNT_MAX = 32768
"""Messages in an append. Reput's; RocketMQ limits the bytes only."""

APPEND_REQUEST_SIZE_BYTES_MAX = 16 * MIB
"""Size of a serialized AppendRequest. Reput's."""

QUEUE_COUNT_MAX = QUEUE_ID_MAX = 65535
"""Queues of a topic, and the highest id of a queue that accepts appends."""

READ_COUNT_MAX = 4_096
"""Records of a single read request. Reput's."""

KEY_COUNT_MAX = PROPERTIES_SIZE_BYTES_MAX // 2 + 1
"""Index keys of a record: every key needs a byte and a space, and the unique id adds a key."""

TIMER_DELAY_MS_MAX = 40 * 86_400_000
"""Longest delay of a message with a delivery time. Reput's; RocketMQ's timerMaxDelaySec is 3 days."""

BORN_TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999. Reput's: a later time is an error of units, and many readers can't show it."""

TIMER_PRECISION_MS = 1_000
"""Default of timerPrecisionMs: TIMER_OUT_MS is a multiple of it."""

CONSUME_QUEUE_UNIT_COUNT = 300_000
"""Units in a consume queue file, 6,000,000 bytes."""

INDEX_SLOT_COUNT = 5_000_000
"""Default of maxHashSlotNum."""

INDEX_ENTRY_CAPACITY = 20_000_000
"""Default of maxIndexNum; entry 0 is never used."""

CONFIG_FILE_SIZE_BYTES_MAX = 256 * MIB
"""A larger JSON file is no file of a store."""

assert BODY_SIZE_BYTES_MAX + RECORD_SIZE_SLACK_BYTES + BLANK_SIZE_BYTES_MIN <= SEGMENT_SIZE_BYTES
assert RECORD_OVERHEAD_BYTES_MAX + TOPIC_SIZE_BYTES_MAX + PROPERTIES_SIZE_BYTES_MAX <= RECORD_SIZE_SLACK_BYTES
assert SEGMENT_SIZE_BYTES <= SEGMENT_SIZE_BYTES_MAX
assert BODY_SIZE_BYTES_MAX + RECORD_SIZE_SLACK_BYTES <= APPEND_REQUEST_SIZE_BYTES_MAX
assert CRC_PROPERTY_SIZE_BYTES < PROPERTIES_SIZE_BYTES_MAX
assert TOPIC_SIZE_BYTES_MAX < 128  # a signed byte must hold it

CLOCK_STEP_MS_MAX = 1_000
"""A record that is older by more than this than a record before it is of an older log, unless a setting says else."""
