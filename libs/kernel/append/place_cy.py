# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pass 2 of `append`: assigns queue offsets and writes the records of a checked and planned request.

This pass can't fail and checks nothing: append_cy.py has checked every length, queue and limit. It writes the bytes
[position, position + planned size) of the segment, the counters of the table and the answer's columns.
Layout: docs/formats/commit_log.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import Target, copy, matches, put_int16, put_int32, put_int64, put_text
from cython.cimports.libs.kernel.append.message_cy import (
    is_real_place,
    is_store_property,
    next_field,
    read_entry,
    timer_of,
)
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.text_cy import crc32, decimal_size, java_hash, next_property


class Job:
    """A call: its buffers, limits, running totals and the refusal, as C fields in the compiled build."""


def place_message(job, index, field, piece):
    """Run pass 2 for a message: choose the queue, assign the queue offset, write the record."""
    at: cython.Py_ssize_t = index * PLAN_STRIDE
    answer: cython.Py_ssize_t = job.first + index
    row: cython.Py_ssize_t = job.plan[at + PLAN_ROW]
    counter: cython.Py_ssize_t
    kind: cython.longlong = job.plan[at + PLAN_SYS_FLAG] & TRANSACTION_TYPE
    if job.plan[at + PLAN_REDIRECT] != REDIRECT_NONE:
        job.rows[job.plan[at + PLAN_REAL_ROW] + ROUND_ROBIN] += 1
    elif job.plan[at + PLAN_QUEUE_ID] == SERVER_CHOOSES:
        job.plan[at + PLAN_QUEUE_ID] = job.rows[row + ROUND_ROBIN] % job.rows[row + WRITE_QUEUE_COUNT]
        job.rows[row + ROUND_ROBIN] += 1
    job.queue_ids[answer] = job.plan[at + PLAN_QUEUE_ID]
    job.queue_offsets[answer] = 0
    if kind == 0 or kind == TRANSACTION_COMMIT:
        counter = job.rows[row + COUNTER_START] + job.plan[at + PLAN_QUEUE_ID]
        job.queue_offsets[answer] = job.counter_values[counter]
        if job.counter_values[counter] == 0:
            job.rows[row + BEGUN_COUNT] += 1
            job.new_queue_count += 1
        job.counter_values[counter] += 1
    job.physical_offsets[answer] = job.base_physical_offset + job.position
    write_record(job, at, answer, field, piece)
    job.position += job.plan[at + PLAN_SIZE]


def may_begin_queue(job, at):
    """Return whether the queue of a message, or the queue that the server would choose, may have no message yet."""
    row: cython.Py_ssize_t = job.plan[at + PLAN_ROW]
    if row < 0 or job.rows[row + WRITE_QUEUE_COUNT] == 0:
        return False
    if job.plan[at + PLAN_QUEUE_ID] == SERVER_CHOOSES:
        return job.rows[row + BEGUN_COUNT] < job.rows[row + WRITE_QUEUE_COUNT]
    return job.counter_values[job.rows[row + COUNTER_START] + job.plan[at + PLAN_QUEUE_ID]] == 0


def write_record(job, at, answer, field, piece):
    """Write a finished record at job.position."""
    target: Target = job.segment
    start: cython.Py_ssize_t = job.position
    size: cython.Py_ssize_t = job.plan[at + PLAN_SIZE]
    body_size: cython.Py_ssize_t = job.plan[at + PLAN_BODY_LENGTH]
    row: cython.Py_ssize_t = job.plan[at + PLAN_ROW]
    put_int32(target, start, size)
    put_int32(target, start + 4, MAGIC_V1)
    put_int32(target, start + 8, crc32(job.request, job.plan[at + PLAN_BODY_START], body_size) & INT32_MAX)
    put_int32(target, start + 12, job.plan[at + PLAN_QUEUE_ID])
    put_int32(target, start + 16, job.plan[at + PLAN_FLAG])
    put_int64(target, start + 20, job.queue_offsets[answer])
    put_int64(target, start + 28, job.physical_offsets[answer])
    put_int32(target, start + 36, job.plan[at + PLAN_SYS_FLAG])
    put_int64(target, start + 40, job.plan[at + PLAN_BORN_TIME])
    start = write_host(job, start + 48, at)
    put_int64(target, start, job.store_time_ms)
    copy(target, start + 8, job.store_host, 0, job.store_host_size)
    start += 8 + job.store_host_size
    put_int32(target, start, job.plan[at + PLAN_RECONSUME_TIMES])
    put_int64(target, start + 4, job.plan[at + PLAN_PREPARED_OFFSET])
    put_int32(target, start + 12, body_size)
    copy(target, start + 16, job.request, job.plan[at + PLAN_BODY_START], body_size)
    start += 16 + body_size
    target[start] = job.rows[row + NAME_SIZE]
    copy(target, start + 1, job.names, job.rows[row + NAME_START], job.rows[row + NAME_SIZE])
    start += 1 + job.rows[row + NAME_SIZE]
    put_int16(target, start, job.plan[at + PLAN_PROPERTIES_LENGTH])
    start = write_properties(job, start + 2, at, field, piece)
    if job.has_crc_property:
        write_crc_property(job, job.position, start)


def write_host(job, position, at):
    """Write the born host. Returns the place after it."""
    size: cython.Py_ssize_t = 16 if job.plan[at + PLAN_SYS_FLAG] & BORN_HOST_V6 else 4
    if job.plan[at + PLAN_ADDRESS_START] == DEFAULT_HOST:
        copy(job.segment, position, job.default_born_host, 0, size + 4)
    else:
        copy(job.segment, position, job.request, job.plan[at + PLAN_ADDRESS_START], size)
        put_int32(job.segment, position + size, job.plan[at + PLAN_PORT])
    return position + size + 4


def write_properties(job, position, at, field, piece):
    """Write the properties of the client, each ended by 0x02, and of the store. Returns the place after them."""
    form: cython.longlong = job.plan[at + PLAN_PROPERTIES_FORM]
    start: cython.Py_ssize_t = job.plan[at + PLAN_STRING_START]
    end: cython.Py_ssize_t = start + job.plan[at + PLAN_STRING_SIZE]
    job.added_count = 0
    if form == FORM_STRING:
        copy(job.segment, position, job.request, start, end - start)
        position += end - start
        if start < end and job.request[end - 1] != 2:
            job.segment[position] = 2
            position += 1
    elif form == FORM_PIECES:
        while start < end:
            start = next_property(job.request, start, end, piece)
            position = write_property(job, position, at, piece)
    else:
        start = job.plan[at + PLAN_MESSAGE_START]
        end = job.plan[at + PLAN_MESSAGE_END]
        while start < end:
            start = next_field(job.request, start, end, field)
            if field.number == 4:
                read_entry(job.request, field.start, field.start + field.size, field, piece)
                position = write_property(job, position, at, piece)
    if job.plan[at + PLAN_REDIRECT] != REDIRECT_NONE:
        position = write_real_queue_id(job, write_added(job, position, at, HASH_MAP_MASK), at)
    if at == 0:
        copy(job.segment, position, job.stamp, 0, job.stamp_size)
        position += job.stamp_size
    return position


def write_property(job, position, at, piece):
    """Write a property of the client, unless the store writes it itself. Returns the place after it."""
    redirect: cython.longlong = job.plan[at + PLAN_REDIRECT]
    is_delay: cython.bint
    if is_store_property(job.request, piece):
        return position
    if redirect != REDIRECT_NONE:
        if is_real_place(job.request, piece):
            return position
        if redirect == REDIRECT_LEVEL and timer_of(job.request, piece) != TIMER_NONE:
            return position
        position = write_added(job, position, at, bucket_of(job.request, piece))
        is_delay = piece.name_size == 5 and matches(job.request, piece.name_start, b"DELAY", 5)
        if is_delay and redirect == REDIRECT_LEVEL and job.plan[at + PLAN_REDIRECT_VALUE] > 0:
            put_text(job.segment, position, b"DELAY\x01", 6)
            return write_number(job.segment, position + 6, job.plan[at + PLAN_REDIRECT_VALUE])
    copy(job.segment, position, job.request, piece.name_start, piece.name_size)
    position += piece.name_size
    job.segment[position] = 1
    copy(job.segment, position + 1, job.request, piece.value_start, piece.value_size)
    position += 1 + piece.value_size
    job.segment[position] = 2
    return position + 1


def bucket_of(source, piece):
    """Return the bucket of this property in RocketMQ's HashMap."""
    value: cython.uint = java_hash(source, piece.name_start, piece.name_size, 0)
    return (value ^ (value >> 16)) & HASH_MAP_MASK


def write_added(job, position, at, bucket):
    """Write TIMER_OUT_MS and REAL_TOPIC if they come before this bucket, each once. Returns the place after them."""
    size: cython.Py_ssize_t = job.plan[at + PLAN_TOPIC_SIZE]
    if job.added_count == 0 and bucket > TIMER_OUT_BUCKET:
        job.added_count = 1
        if job.plan[at + PLAN_REDIRECT] == REDIRECT_TIMER:
            put_text(job.segment, position, b"TIMER_OUT_MS\x01", 13)
            position = write_number(job.segment, position + 13, job.plan[at + PLAN_REDIRECT_VALUE])
    if job.added_count > 1 or bucket <= REAL_TOPIC_BUCKET:
        return position
    job.added_count = 2
    put_text(job.segment, position, b"REAL_TOPIC\x01", 11)
    copy(job.segment, position + 11, job.request, job.plan[at + PLAN_TOPIC_START], size)
    job.segment[position + 11 + size] = 2
    return position + 12 + size


def write_real_queue_id(job, position, at):
    """Write REAL_QID. It comes last, because its bucket in the HashMap is the last. Returns the place after it."""
    put_text(job.segment, position, b"REAL_QID\x01", 9)
    return write_number(job.segment, position + 9, job.plan[at + PLAN_REAL_QUEUE_ID])


def write_number(target, position, number):
    """Write a number that is not negative in decimal, and the end of the property. Returns the place after it."""
    digit: cython.Py_ssize_t
    end: cython.Py_ssize_t = position + decimal_size(number)
    for digit in range(end - 1, position - 1, -1):
        target[digit] = 48 + number % 10
        number //= 10
    target[end] = 2
    return end + 1


def write_crc_property(job, start, position):
    """Write the CRC property of the record in [start, position): ten decimal digits, lowest first."""
    value: cython.longlong = crc32(job.segment, start, position - start) & INT32_MAX
    digit: cython.Py_ssize_t
    put_int64(job.segment, position, CRC_PROPERTY_NAME)
    job.segment[position + 8] = 1
    for digit in range(position + 9, position + 19):
        job.segment[digit] = 48 + value % 10
        value //= 10
    job.segment[position + 19] = 2


def own_queue(job, row, asked):
    """Return the queue of a message in a topic with a share. SERVER_CHOOSES if no queue here takes the message.

    A client names an open queue (`asked`). The store itself names any queue, or gets an open queue in turn, or a sealed
    queue if none is open.
    """
    found: cython.longlong = SERVER_CHOOSES
    count: cython.longlong = job.rows[row + WRITE_QUEUE_COUNT]
    start: cython.longlong = job.rows[row + COUNTER_START]
    number: cython.longlong
    queue_id: cython.longlong
    if asked != SERVER_CHOOSES:
        return asked if job.is_internal or job.own_queues[start + asked] == OPEN_QUEUE else SERVER_CHOOSES
    if not job.is_internal:
        return SERVER_CHOOSES
    for number in range(count):
        queue_id = (job.rows[row + ROUND_ROBIN] + job.count + number) % count
        if job.own_queues[start + queue_id] == OPEN_QUEUE:
            return queue_id
        if job.own_queues[start + queue_id] == SEALED_QUEUE:
            found = queue_id
    return found
