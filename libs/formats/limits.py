# SPDX-License-Identifier: Apache-2.0
"""Limits of the formats, with units, and the relations between them that the code relies on.

Values are RocketMQ 5.3's defaults unless a comment says otherwise. Settings may lower some of them; nothing raises one
past what its field can hold. Spec: docs/formats/commit_log.md section 8.
"""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

TOPIC_SIZE_BYTES_MAX = 127
"""A V1 record keeps the topic's size in a signed byte; longer names are refused (checkBeforePutMessage)."""

STORED_TOPIC_SIZE_BYTES_MAX, STORED_QUEUE_ID_MAX = 255, INT32_MAX
"""Records of another store may have longer topics, and higher queue ids, than can be appended here."""

GROUP_SIZE_BYTES_MAX = 255
"""Longest name of a consumer group."""

PROPERTIES_SIZE_BYTES_MAX = INT16_MAX
"""The properties' size is a signed 16-bit field; the CRC property counts."""

TIMER_ROOM_BYTES, HALF_ROOM_BYTES = 256, 512
"""What the properties of a message that waits leave free for those that the store adds while it waits. Ours.

A message with a time gets some 140 bytes when it is appended again, half of a transaction as many when its producer is
asked, and it may have to wait for a time when it is committed.
"""

CRC_PROPERTY_SIZE_BYTES = 20
"""`__CRC32#`, 0x01, ten digits, 0x02."""

BODY_SIZE_BYTES_MAX = 4 * MIB
"""Default of maxMessageSize."""

RECORD_SIZE_SLACK_BYTES = 64 * KIB
"""A whole record may be this much larger than the largest body."""

RECORD_SIZE_BYTES_MIN = 91
"""A V1 record with two IPv4 hosts and nothing else."""

RECORD_OVERHEAD_BYTES_MAX = RECORD_SIZE_BYTES_MIN + 24 + 1
"""Fixed bytes of a V2 record with two IPv6 hosts."""

SEGMENT_SIZE_BYTES = GIB
"""Default of mappedFileSizeCommitLog."""

SEGMENT_SIZE_BYTES_MAX = INT32_MAX
"""Positions in a segment are signed 32-bit numbers, and so is the size in a blank record."""

BLANK_SIZE_BYTES_MIN = 8
"""Every segment ends with at least this many filler bytes (END_FILE_MIN_BLANK_LENGTH)."""

BATCH_MESSAGE_COUNT_MAX = 32768
"""Messages in one append. Ours; RocketMQ limits the bytes only."""

APPEND_REQUEST_SIZE_BYTES_MAX = 16 * MIB
"""Serialized AppendRequest. Ours."""

QUEUE_COUNT_MAX = QUEUE_ID_MAX = 65535
"""Queues of one topic, and what an id of one that can be appended to may be."""

READ_COUNT_MAX = 4_096
"""Records that are asked for at once. Ours."""

KEY_COUNT_MAX = PROPERTIES_SIZE_BYTES_MAX // 2 + 1
"""Index keys of one record: every key needs a byte and a space, and the unique id adds one."""

TIMER_DELAY_MS_MAX = 40 * 86_400_000
"""Longest delay of a message that is to be delivered at a time. Ours; RocketMQ's timerMaxDelaySec is 3 days."""

BORN_TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999. Ours: a later one is a slip of units, and many readers can't show it."""

TIMER_PRECISION_MS = 1_000
"""Default of timerPrecisionMs: TIMER_OUT_MS is a multiple of it."""

CONSUME_QUEUE_UNIT_COUNT = 300_000
"""Units in one consume queue file, 6,000,000 bytes."""

INDEX_SLOT_COUNT = 5_000_000
"""Default of maxHashSlotNum."""

INDEX_ENTRY_CAPACITY = 20_000_000
"""Default of maxIndexNum; entry 0 is never used."""

CONFIG_FILE_SIZE_BYTES_MAX = 256 * MIB
"""A larger JSON file is not one of ours."""

assert BODY_SIZE_BYTES_MAX + RECORD_SIZE_SLACK_BYTES + BLANK_SIZE_BYTES_MIN <= SEGMENT_SIZE_BYTES
assert RECORD_OVERHEAD_BYTES_MAX + TOPIC_SIZE_BYTES_MAX + PROPERTIES_SIZE_BYTES_MAX <= RECORD_SIZE_SLACK_BYTES
assert SEGMENT_SIZE_BYTES <= SEGMENT_SIZE_BYTES_MAX
assert BODY_SIZE_BYTES_MAX + RECORD_SIZE_SLACK_BYTES <= APPEND_REQUEST_SIZE_BYTES_MAX
assert CRC_PROPERTY_SIZE_BYTES < PROPERTIES_SIZE_BYTES_MAX
assert TOPIC_SIZE_BYTES_MAX < 128  # a signed byte must hold it

CLOCK_STEP_MS_MAX = 1_000
"""A record that is older than one before it by more than this was left by an older log, unless a setting says else."""
