# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes the answer to an append as protobuf, in a single piece. The columns are copied as append_cy wrote them.

Layout: AppendResponse of protos/reput/commitlog/v1/append_service.proto. An AppendOutcome with a result is the same.
"""

import cython
from cython.cimports.libs.formats.fields import *
from cython.cimports.libs.kernel._bytes import copy, finish_bytes, new_bytes, new_bytes_target, source_of
from cython.cimports.libs.kernel.answer.encode_cy import bytes_size, number_size, put_bytes, put_head, put_number


def encode_append_result(
    start_physical_offset,
    end_physical_offset,
    store_time_ms,
    durability,
    is_repeated,
    store_time_ahead_ms,
    is_late,
    physical_offsets,
    queue_offsets,
    queue_ids,
    store_host,
):
    """Serialize the result of a batch. The columns are packed little-endian numbers, and may be empty.

    `store_host` is the serialized field with the address of the store.
    """
    offsets: cython.const[cython.uchar][::1] = physical_offsets
    within: cython.const[cython.uchar][::1] = queue_offsets
    queues: cython.const[cython.uchar][::1] = queue_ids
    host: cython.const[cython.uchar][::1] = store_host
    start: cython.longlong = start_physical_offset
    end: cython.longlong = end_physical_offset
    time_ms: cython.longlong = store_time_ms
    reached: cython.longlong = durability
    repeated: cython.longlong = is_repeated
    ahead_ms: cython.longlong = store_time_ahead_ms
    late: cython.longlong = is_late
    size: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size = (
        number_size(APPEND_RESULT_START_PHYSICAL_OFFSET, start)
        + number_size(APPEND_RESULT_END_PHYSICAL_OFFSET, end)
        + number_size(APPEND_RESULT_STORE_TIME_MS, time_ms)
        + number_size(APPEND_RESULT_DURABILITY, reached)
        + number_size(APPEND_RESULT_IS_REPEATED, repeated)
        + number_size(APPEND_RESULT_STORE_TIME_AHEAD_MS, ahead_ms)
        + number_size(APPEND_RESULT_IS_LATE, late)
        + bytes_size(APPEND_RESULT_PHYSICAL_OFFSETS, len(offsets))
        + bytes_size(APPEND_RESULT_QUEUE_OFFSETS, len(within))
        + bytes_size(APPEND_RESULT_QUEUE_IDS, len(queues))
        + len(host)
    )
    made = new_bytes(bytes_size(APPEND_RESPONSE_RESULT, size))
    target = new_bytes_target(made)
    at = put_head(target, 0, APPEND_RESPONSE_RESULT, size)
    at = put_number(target, at, APPEND_RESULT_START_PHYSICAL_OFFSET, start)
    at = put_number(target, at, APPEND_RESULT_END_PHYSICAL_OFFSET, end)
    at = put_number(target, at, APPEND_RESULT_STORE_TIME_MS, time_ms)
    at = put_number(target, at, APPEND_RESULT_DURABILITY, reached)
    at = put_column(target, at, APPEND_RESULT_PHYSICAL_OFFSETS, offsets)
    at = put_column(target, at, APPEND_RESULT_QUEUE_OFFSETS, within)
    at = put_column(target, at, APPEND_RESULT_QUEUE_IDS, queues)
    if len(host) > 0:
        copy(target, at, source_of(host), 0, len(host))
        at += len(host)
    at = put_number(target, at, APPEND_RESULT_IS_REPEATED, repeated)
    at = put_number(target, at, APPEND_RESULT_STORE_TIME_AHEAD_MS, ahead_ms)
    put_number(target, at, APPEND_RESULT_IS_LATE, late)
    return finish_bytes(made)


def put_column(target, at, number, column):
    """Write a column as a bytes field. Returns the place after it."""
    if len(column) == 0:
        return put_head(target, at, number, 0)
    return put_bytes(target, at, number, source_of(column), 0, len(column))
