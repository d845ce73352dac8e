# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Append: a serialized AppendRequest becomes records of the commit log. A pass checks, a second pass writes.

Pass 1 (`plan_...`) reads and checks the whole request, resolves topics and computes every size; it writes only to the
plan in the caller's columns. Pass 2 (`place_...`, `write_...`) cannot fail: it gets queue offsets from the table and
writes finished records. So a refused request leaves no trace. Both passes run without the GIL.
A single caller at a time per table and per segment. Not handled: the next segment, creation of topics, durability.
Layout: docs/formats/commit_log.md. Rules: DefaultMessageStore and CommitLog.MessageExtEncoder of RocketMQ 5.3.
"""

import cython
from cython.cimports.libs.formats.fields import *
from cython.cimports.libs.kernel._bytes import equal, source_of, target_of
from cython.cimports.libs.kernel.append.message_cy import (
    Field,
    Message,
    check_properties,
    is_topic_name,
    next_field,
    read_message,
    to_signed,
)
from cython.cimports.libs.kernel.append.place_cy import Job, may_begin_queue, own_queue, place_message
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.text_cy import Property, crc32, decimal_size, java_hash

from libs.kernel.append.append_columns import AppendColumns, AppendLimits
from libs.kernel.append.topic_table import TopicTable

__all__ = ["AppendColumns", "AppendLimits", "TopicTable", "append", "append_group"]

REQUEST_FIELDS = cython.declare(cython.int, 67)  # fields besides the messages, with room for unknown fields
HOST_SIZES = "a host has 8 bytes (IPv4) or 20 bytes (IPv6)"
STRING_SIZE_MAX = cython.declare(cython.Py_ssize_t, 65535)  # of properties, with room for properties that are left out


def append(
    request,
    segment,
    position,
    base_physical_offset,
    store_time_ms,
    default_born_host,
    store_host,
    table,
    limits,
    columns,
    stamp=b"",
):
    """Append all messages of a serialized AppendRequest at `position` of a segment, or none of them.

    request: bytes that do not change during the call. segment: writable, up to the end of a segment; its first byte
    has the physical offset base_physical_offset. Hosts: 8 or 20 bytes as in a record. All records get the store time.
    stamp: bytes of a property that the first record gets besides its own, with their separators; empty for no stamp.
    Returns the position behind the last record. Then the columns describe columns.count messages, and the counters of
    the table have advanced. Or it returns a negative code, and then nothing has changed: columns.error_index,
    error_field and error_value describe the fault, topic_start and topic_size are the place of the topic.
      E_WIRE: not protobuf. E_EMPTY, E_TOO_MANY: number of messages. E_TOPIC_NAME, E_TOPIC_UNKNOWN (create the topic and
      repeat), E_TOPIC_FORBIDDEN, E_QUEUE, E_BODY_SIZE, E_PROPERTIES (form or text), E_PROPERTIES_SIZE, E_DELAY (no
      topic to wait in; a time that is no number, too far, or over for a deletion), E_LIGHT (for light queues), E_HOST,
      E_QUEUE_ELSEWHERE (another log has it; error_value is its number, SERVER_CHOOSES if the message names none),
      E_FIELD (any other value). E_DURABILITY: the limits refuse it. E_BEHIND: it needs the request before it,
      and limits.is_behind_refused.
      E_RECORD_SIZE: above the limit. E_QUEUES: the only fault is that error_value messages, more than the limit, are
      for queues that may have no message yet; columns.places() returns their places. E_WRITER: no fault, but the
      request names a writer (columns.writer_start and writer_size) and there is no stamp; error_value bytes are needed
      without a stamp. E_FULL: no room; error_value bytes are needed, and eight more for the blank. A batch may also be
      larger than any segment: the caller compares.
    Bytes are written, not synced. Raises ValueError for a position outside of the segment, a host of another size
    or a table whose schedule topic has fewer queues than there are delay levels.
    """
    job = new_job(segment, position, base_physical_offset, store_time_ms, store_host, table, limits, columns, stamp)
    begin_request(job, request, default_born_host)
    message: Message = Message()
    field: Field = Field()
    piece: Property = Property()
    outcome: cython.Py_ssize_t
    with cython.nogil:
        outcome = plan_request(job, message, field, piece)
        if outcome == 0:
            place_request(job, field, piece)
            outcome = job.position
    columns.count = job.count if outcome >= 0 or outcome == E_QUEUES else 0
    columns.new_queue_count = job.new_queue_count
    columns.planned_count = job.count
    columns.name_start, columns.name_size = piece.name_start, piece.name_size
    columns.value_start, columns.value_size = piece.value_start, piece.value_size
    columns.durability = job.durability
    columns.error_index, columns.error_field, columns.error_value = job.error_index, job.error_field, job.error_value
    columns.topic_start, columns.topic_size = job.topic_start, job.topic_size
    columns.writer_start, columns.writer_size = job.writer_start, job.writer_size
    return outcome


def append_group(
    requests, default_born_hosts, segment, position, base_physical_offset, store_time_ms, store_host, table, limits,
    columns,
):  # fmt: skip
    """Append requests in order, each in the way of `append`, up to the first request that it would not place.

    requests: bytes, each with a default_born_host. Returns a list with a tuple for each placed request: the position
    behind it, the number of its messages, and its durability. The columns describe the messages of all placed requests
    in order. A request that was not placed has changed nothing, and the columns do not describe it. All requests
    together may begin as many queues as a single request may. It keeps the GIL.
    """
    job = new_job(segment, position, base_physical_offset, store_time_ms, store_host, table, limits, columns, b"")
    message: Message = Message()
    field: Field = Field()
    piece: Property = Property()
    placed = []
    for request, born_host in zip(requests, default_born_hosts, strict=True):
        begin_request(job, request, born_host)
        if plan_request(job, message, field, piece) != 0:
            break
        place_request(job, field, piece)
        placed.append((job.position, job.count, job.durability))
        job.first += job.count
        job.message_count_max = min(job.message_count_max, len(job.queue_ids) - job.first)
        job.begun_count_max = max(0, limits.begun_queue_count_max - job.new_queue_count)
    columns.new_queue_count = job.new_queue_count
    return placed


def new_job(segment, position, base_physical_offset, store_time_ms, store_host, table, limits, columns, stamp):
    """Return a job without a request. Raises ValueError like `append`."""
    job = Job()
    job.segment_view = segment
    job.segment_size = len(job.segment_view)
    job.segment = target_of(job.segment_view)
    job.store_host_view = store_host
    job.store_host_size = len(job.store_host_view)
    job.store_host = source_of(job.store_host_view)
    job.stamp_view = stamp
    job.stamp_size = len(job.stamp_view)
    job.stamp = source_of(job.stamp_view)
    if not 0 <= position <= job.segment_size:
        raise ValueError(f"position {position} is outside of a segment of {job.segment_size} bytes")
    if job.store_host_size not in (8, 20):
        raise ValueError(HOST_SIZES)
    job.position, job.base_physical_offset, job.store_time_ms = position, base_physical_offset, store_time_ms
    job.rows = table.rows
    job.slots = table.slots
    job.names_view = table.names
    job.names = source_of(job.names_view)
    job.counter_values = table.counter_values
    job.own_queues = table.own_queues
    job.body_size_max = limits.body_size_bytes_max
    job.record_size_max = limits.record_size_bytes_max
    job.has_crc_property = limits.crc_property
    job.plan = columns.plan
    job.physical_offsets = columns.physical_offsets
    job.queue_offsets = columns.queue_offsets
    job.queue_ids = columns.queue_ids
    job.redirect_rows = table.redirect_rows
    job.delay_level_max = limits.delay_level_count
    schedule_row: cython.Py_ssize_t = job.redirect_rows[REDIRECT_LEVEL]
    if schedule_row >= 0 and job.rows[schedule_row + WRITE_QUEUE_COUNT] < job.delay_level_max:
        raise ValueError(f"the schedule topic has fewer queues than {job.delay_level_max} delay levels")
    job.first = job.new_queue_count = 0
    job.message_count_max = min(limits.message_count_max, len(columns.queue_ids))
    job.begun_count_max = limits.begun_queue_count_max
    job.refused_durabilities = limits.refused_durabilities
    job.is_behind_refused = limits.is_behind_refused
    job.is_internal = limits.is_internal
    job.clock_ms = store_time_ms - limits.ahead_ms
    return job


def begin_request(job, request, default_born_host):
    """Prepare a job for a new request. Raises ValueError like `append`."""
    job.request_view = request
    job.request_size = len(job.request_view)
    job.request = source_of(job.request_view)
    job.born_host_view = default_born_host
    job.default_born_host_size = len(job.born_host_view)
    job.default_born_host = source_of(job.born_host_view)
    if job.default_born_host_size not in (8, 20):
        raise ValueError(HOST_SIZES)
    job.count = job.total_size = job.begun_count = 0
    job.needs_previous = False
    job.error_index = job.unknown_index = -1
    job.error_field = job.error_value = job.durability = 0
    job.topic_start = job.topic_size = job.last_topic_size = 0
    job.writer_start = -1
    job.writer_size = 0
    return 0


def place_request(job, field, piece):
    """Run pass 2 for all messages of a request."""
    index: cython.Py_ssize_t
    for index in range(job.count):
        place_message(job, index, field, piece)


def refuse(job, index, code, field, value):
    """Record a fault of a message, or of the request as a whole if index is -1. Returns the code."""
    job.error_index = index
    job.error_field = field
    job.error_value = value
    return code


def refuse_message(job, message, code, field, value):
    """Record a fault of the message that is being planned. Returns the code."""
    job.topic_start = message.topic_start
    job.topic_size = message.topic_size
    return refuse(job, job.count, code, field, value)


def refuse_properties(job, message, code, value):
    """Record a fault of the properties of that message, with the field that contains them. Returns the code."""
    field: cython.int = APPEND_MESSAGE_PROPERTY_STRING if message.string_size > 0 else APPEND_MESSAGE_PROPERTIES
    return refuse_message(job, message, code, field, value)


def plan_request(job, message, field, piece):
    """Run pass 1. An unknown topic is reported only if nothing else is wrong, so that no bad request creates it."""
    at: cython.Py_ssize_t = 0
    next_at: cython.Py_ssize_t
    code: cython.int
    field_count: cython.int = 0
    while at < job.request_size:
        next_at = next_field(job.request, at, job.request_size, field)
        if field.number != APPEND_REQUEST_MESSAGES:
            field_count += 1
        if next_at < 0 or field_count > REQUEST_FIELDS:
            return refuse(job, -1, E_WIRE, 0, at)
        if field.number == APPEND_REQUEST_MESSAGES:
            if field.wire_type != 2:
                return refuse(job, -1, E_WIRE, APPEND_REQUEST_MESSAGES, at)
            if job.count >= job.message_count_max:
                return refuse(job, -1, E_TOO_MANY, APPEND_REQUEST_MESSAGES, job.count + 1)
            if not read_message(job.request, field.start, next_at, message, field, piece):
                return refuse(job, job.count, E_WIRE, 0, at)
            code = plan_message(job, message, field, piece)
            if code < 0:
                return code
            job.count += 1
        elif field.number == APPEND_REQUEST_DURABILITY:
            if field.wire_type != 0:
                return refuse(job, -1, E_WIRE, APPEND_REQUEST_DURABILITY, at)
            if field.value > 3:
                return refuse(job, -1, E_FIELD, APPEND_REQUEST_DURABILITY, to_signed(field.value))
            job.durability = field.value
        elif field.number == APPEND_REQUEST_WRITER:
            if field.wire_type != 2 or job.writer_start >= 0:
                return refuse(job, -1, E_WIRE, APPEND_REQUEST_WRITER, at)
            job.writer_start = field.start
            job.writer_size = field.size
        elif field.number == APPEND_STREAM_REQUEST_NEEDS_PREVIOUS and field.wire_type == 0:
            job.needs_previous = field.value != 0
        at = next_at
    if job.count == 0:
        return refuse(job, -1, E_EMPTY, APPEND_REQUEST_MESSAGES, 0)
    if job.is_behind_refused and job.needs_previous:
        return refuse(job, -1, E_BEHIND, APPEND_STREAM_REQUEST_NEEDS_PREVIOUS, 1)
    if job.refused_durabilities >> job.durability & 1:
        return refuse(job, -1, E_DURABILITY, APPEND_REQUEST_DURABILITY, job.durability)
    if job.unknown_index >= 0:
        job.topic_start = job.unknown_start
        job.topic_size = job.unknown_size
        return refuse(job, job.unknown_index, E_TOPIC_UNKNOWN, APPEND_MESSAGE_TOPIC, 0)
    if job.begun_count > job.begun_count_max:
        return refuse(job, -1, E_QUEUES, APPEND_REQUEST_MESSAGES, job.begun_count)
    if job.writer_start >= 0 and job.stamp_size == 0:
        return refuse(job, -1, E_WRITER, APPEND_REQUEST_WRITER, job.total_size)
    if job.total_size + BLANK_SIZE_MIN > job.segment_size - job.position:
        return refuse(job, -1, E_FULL, 0, job.total_size)
    return 0


def plan_message(job, message, field, piece):
    """Check a message against every rule and fill its row of the plan. Returns 0 or a code."""
    at: cython.Py_ssize_t = job.count * PLAN_STRIDE
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    room: cython.Py_ssize_t
    code: cython.int
    if not is_topic_name(job.request, message.topic_start, message.topic_size):
        return refuse_message(job, message, E_TOPIC_NAME, APPEND_MESSAGE_TOPIC, message.topic_size)
    row = find_topic(job, message.topic_start, message.topic_size)
    code = check_fields(job, message)
    if code < 0:
        return code
    if message.string_size > STRING_SIZE_MAX:
        return refuse_properties(job, message, E_PROPERTIES_SIZE, message.string_size)
    code = check_properties(job.request, message, field, piece)
    if code < 0:
        return refuse_properties(job, message, code, 0)
    code = plan_queue(job, message, at, row) or plan_redirect(job, message, at, row)
    if code < 0:
        return code
    job.begun_count += may_begin_queue(job, at)
    size = message.properties_size + (CRC_PROPERTY_SIZE if job.has_crc_property else 0)
    if job.count == 0:
        size += job.stamp_size
    row = job.plan[at + PLAN_REDIRECT]
    room = HALF_ROOM if row == REDIRECT_HALF else TIMER_ROOM if row == REDIRECT_TIMER else 0
    if size > PROPERTIES_SIZE_MAX - room:
        return refuse_properties(job, message, E_PROPERTIES_SIZE, size)
    job.plan[at + PLAN_PROPERTIES_LENGTH] = size
    size += RECORD_SIZE_MIN + message.body_size
    row = job.redirect_rows[row]
    size += job.rows[row + NAME_SIZE] if row >= 0 else message.topic_size
    message.sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if (message.address_size == 16) if message.has_host else (job.default_born_host_size == 20):
        message.sys_flag |= BORN_HOST_V6
        size += HOST_V6_SIZE - HOST_V4_SIZE
    if job.store_host_size == 20:
        message.sys_flag |= STORE_HOST_V6
        size += HOST_V6_SIZE - HOST_V4_SIZE
    if size > job.record_size_max:
        return refuse_message(job, message, E_RECORD_SIZE, 0, size)
    job.total_size += size
    job.plan[at + PLAN_SIZE] = size
    job.plan[at + PLAN_TOPIC_START] = message.topic_start
    job.plan[at + PLAN_TOPIC_SIZE] = message.topic_size
    job.plan[at + PLAN_BODY_START] = message.body_start
    job.plan[at + PLAN_BODY_LENGTH] = message.body_size
    job.plan[at + PLAN_MESSAGE_START] = message.start
    job.plan[at + PLAN_MESSAGE_END] = message.end
    job.plan[at + PLAN_STRING_START] = message.string_start
    job.plan[at + PLAN_STRING_SIZE] = message.string_size
    job.plan[at + PLAN_FLAG] = message.flag
    job.plan[at + PLAN_SYS_FLAG] = message.sys_flag
    job.plan[at + PLAN_BORN_TIME] = message.born_time_ms if message.born_time_ms > 0 else job.store_time_ms
    job.plan[at + PLAN_ADDRESS_START] = message.address_start if message.has_host else DEFAULT_HOST
    job.plan[at + PLAN_PORT] = message.port
    job.plan[at + PLAN_RECONSUME_TIMES] = message.reconsume_times
    job.plan[at + PLAN_PREPARED_OFFSET] = message.prepared_transaction_offset
    if message.entry_count > 0:
        job.plan[at + PLAN_PROPERTIES_FORM] = FORM_ENTRIES
    elif message.has_store_property or job.plan[at + PLAN_REDIRECT] != REDIRECT_NONE:
        job.plan[at + PLAN_PROPERTIES_FORM] = FORM_PIECES
    else:
        job.plan[at + PLAN_PROPERTIES_FORM] = FORM_STRING
    return 0


def check_fields(job, message):
    """Check the fields that need no table."""
    if message.has_queue_id and (message.queue_id < 0 or message.queue_id > INT32_MAX):
        return refuse_message(job, message, E_QUEUE, APPEND_MESSAGE_QUEUE_ID, message.queue_id)
    if message.body_size > job.body_size_max:
        return refuse_message(job, message, E_BODY_SIZE, APPEND_MESSAGE_BODY, message.body_size)
    if message.flag < -INT32_MAX - 1 or message.flag > INT32_MAX:
        return refuse_message(job, message, E_FIELD, APPEND_MESSAGE_FLAG, message.flag)
    if message.sys_flag < 0 or message.sys_flag > INT32_MAX or (message.sys_flag & INNER_BATCH_FLAGS) != 0:
        return refuse_message(job, message, E_FIELD, APPEND_MESSAGE_SYS_FLAG, message.sys_flag)
    if message.born_time_ms < 0 or message.born_time_ms > BORN_TIME_MS_MAX:
        return refuse_message(job, message, E_FIELD, APPEND_MESSAGE_BORN_TIME_MS, message.born_time_ms)
    if message.has_host:
        if message.address_size != 4 and message.address_size != 16:
            return refuse_message(job, message, E_HOST, APPEND_MESSAGE_BORN_HOST, message.address_size)
        if message.port < 0 or message.port > 65535:
            return refuse_message(job, message, E_HOST, APPEND_MESSAGE_BORN_HOST, message.port)
    if message.reconsume_times < 0 or message.reconsume_times > INT32_MAX:
        return refuse_message(job, message, E_FIELD, APPEND_MESSAGE_RECONSUME_TIMES, message.reconsume_times)
    if message.prepared_transaction_offset < 0:
        return refuse_message(
            job, message, E_FIELD, APPEND_MESSAGE_PREPARED_TRANSACTION_OFFSET, message.prepared_transaction_offset
        )
    return 0


def plan_queue(job, message, at, row):
    """Resolve the queue. A queue id is used as an index only after it was compared with the topic's queue count."""
    queue_count: cython.longlong = job.rows[row + WRITE_QUEUE_COUNT] if row >= 0 else 0
    hash_value: cython.longlong
    job.plan[at + PLAN_ROW] = row
    job.plan[at + PLAN_QUEUE_ID] = SERVER_CHOOSES
    if queue_count == 0:
        if job.unknown_index < 0:
            job.unknown_index = job.count
            job.unknown_start = message.topic_start
            job.unknown_size = message.topic_size
        return 0
    if job.rows[row + WRITERS] == NOBODY or (job.rows[row + WRITERS] == SERVICES and not job.is_internal):
        return refuse_message(job, message, E_TOPIC_FORBIDDEN, APPEND_MESSAGE_TOPIC, 0)
    if message.has_queue_id and message.queue_id >= queue_count:
        return refuse_message(job, message, E_QUEUE, APPEND_MESSAGE_QUEUE_ID, message.queue_id)
    asked: cython.longlong = message.queue_id if message.has_queue_id else SERVER_CHOOSES
    if job.rows[row + HAS_SHARE]:
        job.plan[at + PLAN_QUEUE_ID] = own_queue(job, row, asked)
        if job.plan[at + PLAN_QUEUE_ID] == SERVER_CHOOSES:
            return refuse_message(job, message, E_QUEUE_ELSEWHERE, APPEND_MESSAGE_QUEUE_ID, asked)
    elif message.has_queue_id:
        job.plan[at + PLAN_QUEUE_ID] = asked
    elif message.sharding_key_size > 0:
        hash_value = java_hash(job.request, message.sharding_key_start, message.sharding_key_size, 0)
        if hash_value > INT32_MAX:
            hash_value = INT32_SPAN - hash_value  # the absolute value of the signed hash
        job.plan[at + PLAN_QUEUE_ID] = hash_value % queue_count
    return 0


def plan_redirect(job, message, at, row):
    """Plan the topic where a message waits, if it must wait. Its own topic and queue become properties.

    Messages that services append to their own topics are not redirected. If the server chooses the queue, it is chosen
    here: the record contains its id. Returns 0 or E_DELAY.
    """
    redirect: cython.int = REDIRECT_NONE
    queue_id: cython.longlong = job.plan[at + PLAN_QUEUE_ID]
    is_unknown: cython.bint = row < 0 or job.rows[row + WRITE_QUEUE_COUNT] == 0
    job.plan[at + PLAN_REDIRECT] = REDIRECT_NONE
    job.plan[at + PLAN_REDIRECT_VALUE] = 0
    if is_unknown or job.rows[row + WRITERS] != SERVICES:
        redirect = choose_redirect(job, message, at)
    if redirect <= REDIRECT_NONE:
        return redirect
    if job.redirect_rows[redirect] < 0:
        return refuse_properties(job, message, E_DELAY, message.delay_level)
    job.plan[at + PLAN_REDIRECT] = redirect
    if is_unknown:
        return 0  # reported at the end of pass 1
    if queue_id == SERVER_CHOOSES:
        queue_id = (job.rows[row + ROUND_ROBIN] + job.count) % job.rows[row + WRITE_QUEUE_COUNT]
    message.properties_size += REAL_SIZE_MIN + message.topic_size + decimal_size(queue_id) - message.real_size
    job.plan[at + PLAN_ROW] = job.redirect_rows[redirect]
    job.plan[at + PLAN_QUEUE_ID] = plan_level(job, message, at) if redirect == REDIRECT_LEVEL else 0
    job.plan[at + PLAN_REAL_ROW] = row
    job.plan[at + PLAN_REAL_QUEUE_ID] = queue_id
    return 0


def choose_redirect(job, message, at):
    """Return the redirect of a message, or E_DELAY, by RocketMQ's rules (HookUtils, TransactionalMessageBridge).

    A message of a transaction becomes a half message only if it is prepared or has no transaction type. A committed
    message may have to wait for its time. A level has priority over a time. A message waits for its time once.
    """
    kind: cython.longlong = message.sys_flag & TRANSACTION_TYPE
    if message.is_half and (kind == 0 or kind == TRANSACTION_PREPARED):
        message.sys_flag &= ~TRANSACTION_TYPE
        return REDIRECT_HALF
    if kind != 0 and kind != TRANSACTION_COMMIT:
        return REDIRECT_NONE
    if message.delay_level > 0:
        return REDIRECT_LEVEL
    return REDIRECT_NONE if message.timer == TIMER_NONE or message.is_timed_out else plan_time(job, message, at)


def plan_level(job, message, at):
    """Return the queue of a delay level. A higher level becomes the last level. Times beside a level are left out."""
    message.properties_size -= message.timer_size
    if message.delay_level > job.delay_level_max:
        message.delay_level = job.delay_level_max
        message.properties_size -= message.delay_value_size
        message.properties_size += message.delay_count * decimal_size(message.delay_level)
        job.plan[at + PLAN_REDIRECT_VALUE] = message.delay_level
    return message.delay_level - 1


def plan_time(job, message, at):
    """Return REDIRECT_TIMER if a message's time is in the future, REDIRECT_NONE, or E_DELAY. Plans TIMER_OUT_MS."""
    delay_ms: cython.longlong = message.timer_number
    if message.timer == TIMER_DELIVER_MS:
        delay_ms -= job.clock_ms
    elif message.timer == TIMER_DELAY_SEC:
        delay_ms = 1000 * max(-1, min(delay_ms, TIMER_DELAY_MS_MAX))
    if delay_ms > TIMER_DELAY_MS_MAX:
        return refuse_properties(job, message, E_DELAY, delay_ms)
    if delay_ms <= 0:
        return refuse_properties(job, message, E_DELAY, min(delay_ms, -1)) if message.is_timer_delete else REDIRECT_NONE
    delay_ms += job.clock_ms - 1
    job.plan[at + PLAN_REDIRECT_VALUE] = delay_ms // TIMER_PRECISION_MS * TIMER_PRECISION_MS
    message.properties_size += TIMER_OUT_SIZE_MIN + decimal_size(job.plan[at + PLAN_REDIRECT_VALUE])
    return REDIRECT_TIMER


def find_topic(job, start, size):
    """Return the first column of the topic's row, or NO_TOPIC. The topic of the previous message is tried first."""
    mask: cython.Py_ssize_t = len(job.slots) - 1
    slot: cython.Py_ssize_t
    row: cython.Py_ssize_t
    hash_value: cython.longlong
    if job.last_topic_size == size and equal(job.request, job.last_topic_start, job.request, start, size):
        return job.last_topic_row
    hash_value = crc32(job.request, start, size)
    slot = hash_value & mask
    job.last_topic_start = start
    job.last_topic_size = size
    job.last_topic_row = NO_TOPIC
    while job.slots[slot] != 0:
        row = (job.slots[slot] - 1) * ROW_STRIDE
        if (
            job.rows[row + NAME_HASH] == hash_value
            and job.rows[row + NAME_SIZE] == size
            and equal(job.names, job.rows[row + NAME_START], job.request, start, size)
        ):
            job.last_topic_row = row
            break
        slot = (slot + 1) & mask
    return job.last_topic_row
