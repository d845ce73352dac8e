# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled session: HTTP/2 of a server's connection by libnghttp2, whole calls out, answers in, by reference.

It has the contract of `plain.PlainSession`, which is the same in Python on the package's own connection; the tests run
on both. libnghttp2 is the library inside the package: its functions are found in the package's extension module, so
both builds always use the same version of it.

Invariants: a call is whole only if its head and its single, uncompressed message arrived in one `receive_data`; all
other calls become the events of the package. A message of an arriving call is allocated only while the bytes that were
received together can fill it. After an error of the connection nothing of the library is used any more.
Callers: a single event loop. Callbacks of the library keep an exception in `failure` and return an error code.
"""
cimport cython
from cpython.buffer cimport PyBUF_CONTIG_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from libs.runtime.http2.session.nghttp2 cimport *

import os
from collections import deque

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.heads import HEAD, OK
from libs.runtime.http2.session.whole import KNOWN_HEAD_COUNT_MAX, KNOWN_HEAD_SIZE_BYTES_MAX, WholeCall

cdef extern from "<dlfcn.h>":
    void *dlopen(const char *, int)
    void *dlsym(void *, const char *)
    int RTLD_NOW, RTLD_LOCAL

cdef enum:
    PREFIX_SIZE = 5
    FRAME_HEAD_SIZE = 9
    TIMEOUT_SIZE_MAX = 9
    FIELD_OVERHEAD = 32
    BY_REFERENCE_SIZE_MIN = 8 << 10  # below that a copy costs less than another piece
    KEPT_BUFFER_SIZE = 64 << 10  # a larger buffer is freed after its use

cdef Library lib
cdef list _missing = []


cdef void find(void *handle, void **place, name):
    place[0] = NULL if handle is NULL else dlsym(handle, name)
    if place[0] is NULL:
        _missing.append(name.decode())


def _find_all():
    """Find the functions of the library in the package's extension module. Raises ImportError."""
    path = os.fsencode(h2.LIBRARY_PATH)
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)
    find(handle, <void **>&lib.callbacks_new, b"nghttp2_session_callbacks_new")
    find(handle, <void **>&lib.callbacks_del, b"nghttp2_session_callbacks_del")
    find(handle, <void **>&lib.set_begin_headers, b"nghttp2_session_callbacks_set_on_begin_headers_callback")
    find(handle, <void **>&lib.set_header, b"nghttp2_session_callbacks_set_on_header_callback")
    find(handle, <void **>&lib.set_invalid_header, b"nghttp2_session_callbacks_set_on_invalid_header_callback")
    find(handle, <void **>&lib.set_data, b"nghttp2_session_callbacks_set_on_data_chunk_recv_callback")
    find(handle, <void **>&lib.set_frame, b"nghttp2_session_callbacks_set_on_frame_recv_callback")
    find(handle, <void **>&lib.set_close, b"nghttp2_session_callbacks_set_on_stream_close_callback")
    find(handle, <void **>&lib.set_not_sent, b"nghttp2_session_callbacks_set_on_frame_not_send_callback")
    find(handle, <void **>&lib.set_sent, b"nghttp2_session_callbacks_set_on_frame_send_callback")
    find(handle, <void **>&lib.set_send_data, b"nghttp2_session_callbacks_set_send_data_callback")
    find(handle, <void **>&lib.set_random, b"nghttp2_session_callbacks_set_rand_callback")
    find(handle, <void **>&lib.option_new, b"nghttp2_option_new")
    find(handle, <void **>&lib.option_del, b"nghttp2_option_del")
    find(handle, <void **>&lib.option_no_auto_window_update, b"nghttp2_option_set_no_auto_window_update")
    find(handle, <void **>&lib.option_stream_reset_rate_limit, b"nghttp2_option_set_stream_reset_rate_limit")
    find(handle, <void **>&lib.option_glitch_rate_limit, b"nghttp2_option_set_glitch_rate_limit")
    find(handle, <void **>&lib.option_max_continuations, b"nghttp2_option_set_max_continuations")
    find(handle, <void **>&lib.option_max_settings, b"nghttp2_option_set_max_settings")
    find(handle, <void **>&lib.option_max_outbound_ack, b"nghttp2_option_set_max_outbound_ack")
    find(handle, <void **>&lib.option_max_send_header_block_length, b"nghttp2_option_set_max_send_header_block_length")
    find(handle, <void **>&lib.option_builtin_recv_extension_type, b"nghttp2_option_set_builtin_recv_extension_type")
    find(handle, <void **>&lib.server_new, b"nghttp2_session_server_new2")
    find(handle, <void **>&lib.session_del, b"nghttp2_session_del")
    find(handle, <void **>&lib.mem_recv, b"nghttp2_session_mem_recv2")
    find(handle, <void **>&lib.mem_send, b"nghttp2_session_mem_send2")
    find(handle, <void **>&lib.want_read, b"nghttp2_session_want_read")
    find(handle, <void **>&lib.want_write, b"nghttp2_session_want_write")
    find(handle, <void **>&lib.resume_data, b"nghttp2_session_resume_data")
    find(handle, <void **>&lib.consume, b"nghttp2_session_consume")
    find(handle, <void **>&lib.consume_connection, b"nghttp2_session_consume_connection")
    find(handle, <void **>&lib.last_stream_id, b"nghttp2_session_get_last_proc_stream_id")
    find(handle, <void **>&lib.set_local_window_size, b"nghttp2_session_set_local_window_size")
    find(handle, <void **>&lib.get_stream_user_data, b"nghttp2_session_get_stream_user_data")
    find(handle, <void **>&lib.set_stream_user_data, b"nghttp2_session_set_stream_user_data")
    find(handle, <void **>&lib.submit_settings, b"nghttp2_submit_settings")
    find(handle, <void **>&lib.submit_response, b"nghttp2_submit_response2")
    find(handle, <void **>&lib.submit_trailer, b"nghttp2_submit_trailer")
    find(handle, <void **>&lib.submit_rst_stream, b"nghttp2_submit_rst_stream")
    find(handle, <void **>&lib.submit_ping, b"nghttp2_submit_ping")
    find(handle, <void **>&lib.submit_goaway, b"nghttp2_submit_goaway")
    find(handle, <void **>&lib.submit_shutdown_notice, b"nghttp2_submit_shutdown_notice")
    find(handle, <void **>&lib.strerror, b"nghttp2_strerror")
    find(handle, <void **>&lib.is_fatal, b"nghttp2_is_fatal")
    if _missing:
        raise ImportError(f"{h2.LIBRARY_PATH} lacks {', '.join(_missing)} of libnghttp2")


_find_all()


@cython.final
@cython.freelist(256)
cdef class Stream:
    """A stream: its request while it may become a whole call, and its answer until it has left."""

    cdef int32_t id
    # coming in, while the call may become whole
    cdef bint is_pending
    cdef object head
    cdef bytes key  # the fields of its head but for grpc-timeout
    cdef bytes timeout
    cdef Py_ssize_t timeout_index
    cdef double timeout_s
    cdef uint8_t[PREFIX_SIZE] prefix
    cdef size_t prefix_size, length, received, framed  # `framed`: bytes of complete frames
    cdef bytes message
    # coming in, afterwards
    cdef list pieces  # of the frame that is not complete
    # going out
    cdef bint has_answer, is_ended, is_deferred, is_counted
    cdef bytes current  # at `at`; the others follow it
    cdef size_t at, queued
    cdef object others
    cdef object trailers


@cython.final
cdef class Session:
    """The session of a caller's connection. See `plain.PlainSession`."""

    cdef nghttp2_session *session
    cdef dict streams, known
    cdef object head_of, failure
    cdef list found, pending, parts
    cdef size_t message_size_max, header_size_max, header_count_max
    cdef uint8_t *block  # the fields of the head that arrives
    cdef size_t block_size, block_room, header_size, header_count
    cdef bytes timeout
    cdef Py_ssize_t timeout_index
    cdef bint is_odd  # the head has something that only `Head` can judge
    cdef size_t input_size, reserved
    cdef char *out
    cdef size_t out_size, out_room, sent, amount
    cdef size_t unacknowledged
    cdef bint is_failed, is_terminating, is_closing, is_closed
    cdef uint32_t close_code
    cdef Py_ssize_t left_count

    def __cinit__(self, opener):
        cdef nghttp2_callbacks *callbacks = NULL
        cdef nghttp2_option *option = NULL
        self.streams, self.found, self.pending = {}, [], []
        self.known, self.head_of = opener.known, opener.head_of
        self.message_size_max = opener.message_size_bytes_max
        self.header_size_max, self.header_count_max = opener.header_size_bytes_max, opener.header_count_max
        if lib.callbacks_new(&callbacks) != 0 or lib.option_new(&option) != 0:
            raise MemoryError
        try:
            set_callbacks(callbacks)
            set_options(option, opener)
            if lib.server_new(&self.session, callbacks, <void *>self, option) != 0:
                raise MemoryError
        finally:
            lib.option_del(option)
            lib.callbacks_del(callbacks)
        self.begin(opener)

    cdef int begin(self, opener) except -1:
        cdef nghttp2_settings_entry[4] settings
        settings[0].settings_id, settings[0].value = SETTINGS_MAX_CONCURRENT_STREAMS, opener.call_count_max
        settings[1].settings_id, settings[1].value = SETTINGS_INITIAL_WINDOW_SIZE, opener.call_window_bytes
        settings[2].settings_id, settings[2].value = SETTINGS_MAX_FRAME_SIZE, opener.frame_size_bytes_max
        settings[3].settings_id, settings[3].value = SETTINGS_MAX_HEADER_LIST_SIZE, opener.header_size_bytes_max
        self.check(lib.submit_settings(self.session, FLAG_NONE, settings, 4))
        self.check(lib.set_local_window_size(self.session, FLAG_NONE, 0, opener.window_bytes))
        return 0

    def __dealloc__(self):
        if self.session is not NULL:
            lib.session_del(self.session)
        free(self.block)
        free(self.out)

    # bytes in

    def receive_data(self, data):
        """See `PlainSession`."""
        cdef Py_buffer view
        cdef Py_ssize_t result, size
        cdef Stream stream
        self.require_active()
        PyObject_GetBuffer(data, &view, PyBUF_CONTIG_RO)
        try:
            size = view.len
            self.input_size, self.reserved = size, 0
            result = lib.mem_recv(self.session, <const uint8_t *>view.buf, size)
        finally:
            PyBuffer_Release(&view)
        if result < 0:
            self.check(result)
        if result != size:
            self.fail()
            raise h2.InternalError("HTTP/2 did not take all bytes")
        if self.pending:
            for stream in self.pending:
                if stream.is_pending:
                    self.demote(stream, is_last=False)
            self.pending.clear()
        if self.is_closing:
            self.update_end()

    def events(self):
        """See `PlainSession`."""
        found = self.found
        if found:
            self.found = []
        return found

    def take_left_count(self):
        """See `PlainSession`."""
        count, self.left_count = self.left_count, 0
        return count

    def acknowledge_received_data(self, size_t size, int32_t stream_id):
        """See `PlainSession`."""
        self.require_active()
        if not size:
            return
        if size > self.unacknowledged:
            raise ValueError("more bytes are acknowledged than were received")
        self.unacknowledged -= size
        self.check(lib.consume(self.session, stream_id, size))

    def set_local_window_size(self, int32_t size):
        """See `PlainSession`."""
        self.require_active()
        self.check(lib.set_local_window_size(self.session, FLAG_NONE, 0, size))

    # answers

    def send_response(self, int32_t stream_id, fields, *, bint end_stream=False):
        """See `PlainSession`."""
        cdef Stream stream = self.unanswered(stream_id)
        cdef nghttp2_data_provider provider
        cdef nghttp2_nv *values = fields_in(fields)
        provider.source, provider.read_callback = NULL, on_read
        try:
            self.check(lib.submit_response(
                self.session, stream_id, values, len(fields), NULL if end_stream else &provider))
        finally:
            free(values)
        stream.has_answer, stream.is_ended = True, end_stream

    def send_data(self, int32_t stream_id, bytes data not None, *, bint end_stream=False):
        """See `PlainSession`."""
        cdef Stream stream = self.unended(stream_id)
        push(stream, data)
        stream.is_ended = end_stream
        if data or end_stream:
            self.resume(stream)

    def send_message(self, int32_t stream_id, bytes message not None):
        """See `PlainSession`."""
        cdef Stream stream = self.unended(stream_id)
        push_message(stream, message)
        self.resume(stream)

    def send_trailers(self, int32_t stream_id, fields):
        """See `PlainSession`."""
        cdef Stream stream = self.unended(stream_id)
        stream.trailers, stream.is_ended = fields, True
        self.resume(stream)

    def answer(self, int32_t stream_id, bytes message not None, bint is_counted=False):
        """See `PlainSession`."""
        cdef Stream stream = self.unanswered(stream_id)
        cdef nghttp2_data_provider provider
        provider.source, provider.read_callback = NULL, on_read
        push_message(stream, message)
        stream.trailers, stream.has_answer, stream.is_ended, stream.is_counted = OK, True, True, is_counted
        self.check(lib.submit_response(self.session, stream_id, HEAD_FIELDS, HEAD_COUNT, &provider))

    def queued_body_size(self, int32_t stream_id):
        """See `PlainSession`."""
        cdef Stream stream = self.streams.get(stream_id)
        return 0 if stream is None or self.is_closed else stream.queued

    def reset_stream(self, int32_t stream_id, uint32_t error_code=8):
        """See `PlainSession`."""
        self.require_active()
        self.check(lib.submit_rst_stream(self.session, FLAG_NONE, stream_id, error_code))

    # the connection

    def ping(self):
        """See `PlainSession`."""
        cdef uint8_t[8] nothing
        memset(nothing, 0, 8)
        self.require_active()
        self.check(lib.submit_ping(self.session, FLAG_NONE, nothing))

    def send_goaway(self):
        """See `PlainSession`."""
        self.require_active()
        self.check(lib.submit_goaway(self.session, FLAG_NONE, lib.last_stream_id(self.session), 0, NULL, 0))

    def send_shutdown_notice(self):
        """See `PlainSession`."""
        self.require_active()
        self.check(lib.submit_shutdown_notice(self.session))

    # bytes out

    def parts_to_send(self, size_t amount):
        """See `PlainSession`."""
        cdef const uint8_t *data
        cdef Py_ssize_t size
        if self.is_failed:
            raise h2.ConnectionStateError("the connection is not used any more")
        self.parts, self.sent, self.amount, self.out_size = [], 0, amount, 0
        while self.sent < amount:
            size = lib.mem_send(self.session, &data)
            if size < 0:
                self.check(size)
            if size == 0:
                break
            self.put(data, size)
        self.end_part()
        parts, self.parts = self.parts, None
        if self.is_closing:
            self.update_end()
        return parts

    cdef int put(self, const void *data, size_t size) except -1:
        cdef size_t room
        cdef char *grown
        if self.out_size + size > self.out_room:
            room = 2 * (self.out_size + size)
            grown = <char *>realloc(self.out, room)
            if grown is NULL:
                raise MemoryError
            self.out, self.out_room = grown, room
        memcpy(self.out + self.out_size, data, size)
        self.out_size += size
        self.sent += size
        return 0

    cdef int end_part(self) except -1:
        if self.out_size:
            self.parts.append(PyBytes_FromStringAndSize(self.out, self.out_size))
            self.out_size = 0
        if self.out_room > KEPT_BUFFER_SIZE:
            free(self.out)
            self.out, self.out_room = NULL, 0
        return 0

    cdef int put_body(self, Stream stream, size_t size) except -1:
        """Put the next bytes of an answer, large pieces by reference."""
        cdef size_t length, n
        stream.queued -= size
        while size:
            length = PyBytes_GET_SIZE(stream.current)
            n = min(length - stream.at, size)
            if n < BY_REFERENCE_SIZE_MIN:
                self.put(PyBytes_AS_STRING(stream.current) + stream.at, n)
            else:
                self.end_part()
                self.parts.append(
                    stream.current if n == length else memoryview(stream.current)[stream.at : stream.at + n])
                self.sent += n
            stream.at += n
            size -= n
            if stream.at == length:
                stream.current, stream.at = stream.others.popleft() if stream.others else None, 0
        return 0

    # a request

    cdef int note_field(self, const uint8_t *name, size_t name_size, const uint8_t *value, size_t value_size) except -1:
        """Keep a field of a head. Raises DenialOfServiceError for a list that is too long."""
        cdef size_t size = 2 * sizeof(uint32_t) + name_size + value_size
        cdef uint32_t[2] sizes
        cdef uint8_t *grown
        self.header_size += name_size + value_size + FIELD_OVERHEAD
        if self.header_size > self.header_size_max:
            raise h2.DenialOfServiceError("the header list is too large")
        if self.header_count >= self.header_count_max:
            raise h2.DenialOfServiceError("the header list has too many fields")
        self.header_count += 1
        if name_size == 12 and memcmp(name, b"grpc-timeout", 12) == 0:
            if self.timeout is None and is_timeout(value, value_size):
                self.timeout = (<const char *>value)[:value_size]
                self.timeout_index = self.header_count - 1
                return 0
            self.is_odd = True
        if self.block_size + size > self.block_room:
            grown = <uint8_t *>realloc(self.block, 2 * (self.block_size + size))
            if grown is NULL:
                raise MemoryError
            self.block, self.block_room = grown, 2 * (self.block_size + size)
        sizes[0], sizes[1] = <uint32_t>name_size, <uint32_t>value_size
        memcpy(self.block + self.block_size, sizes, sizeof(sizes))
        memcpy(self.block + self.block_size + sizeof(sizes), name, name_size)
        memcpy(self.block + self.block_size + sizeof(sizes) + name_size, value, value_size)
        self.block_size += size
        return 0

    cdef int take_head(self, int32_t stream_id, bint is_last) except -1:
        """Begin a call: it may become whole if its method takes a single message and its head is in order."""
        cdef Stream stream = Stream.__new__(Stream)
        cdef bytes key = PyBytes_FromStringAndSize(<char *>self.block, self.block_size)
        cdef object head = None
        stream.id = stream_id
        self.streams[stream_id] = stream
        lib.set_stream_user_data(self.session, stream_id, <void *>stream)
        if not is_last and not self.is_odd:
            head = self.known.get(key)
            if head is None:
                head = self.head_of(fields_of(key)) or False
                if len(key) <= KNOWN_HEAD_SIZE_BYTES_MAX:
                    if len(self.known) >= KNOWN_HEAD_COUNT_MAX:
                        self.known.clear()
                    self.known[key] = head
        stream.key, stream.timeout, stream.timeout_index = key, self.timeout, self.timeout_index
        if head is None or head is False:
            self.found.append(h2.RequestReceived(stream_id, request_fields(stream), is_last))
            stream.key = None
            return 0
        stream.head, stream.is_pending = head, True
        self.pending.append(stream)
        return 0

    cdef int take_data(self, Stream stream, const uint8_t *data, size_t size) except -1:
        """Take a part of a frame."""
        cdef size_t n
        if stream.is_pending:
            n = min(PREFIX_SIZE - stream.prefix_size, size)
            memcpy(stream.prefix + stream.prefix_size, data, n)
            if n:
                stream.prefix_size += n
                if stream.prefix_size == PREFIX_SIZE and not self.reserve(stream):
                    self.demote(stream, is_last=False)
            if stream.is_pending:
                data += n
                size -= n
                if size > stream.length - stream.received:
                    self.demote(stream, is_last=False)
                elif size:
                    memcpy(PyBytes_AS_STRING(stream.message) + stream.received, data, size)
                    stream.received += size
                    return 0
                else:
                    return 0
            else:
                data += n
                size -= n
        if size:
            if stream.pieces is None:
                stream.pieces = []
            stream.pieces.append((<const char *>data)[:size])
        return 0

    cdef bint reserve(self, Stream stream) except -1:
        """Allocate the message of a call, unless it cannot become whole with the bytes that arrived together."""
        cdef size_t length = (
            <uint32_t>stream.prefix[1] << 24 | <uint32_t>stream.prefix[2] << 16
            | <uint32_t>stream.prefix[3] << 8 | stream.prefix[4])
        if stream.prefix[0] or length > self.message_size_max or self.reserved + length > self.input_size:
            return False
        self.reserved += length
        stream.length = length
        stream.message = PyBytes_FromStringAndSize(NULL, length)
        return True

    cdef int end_frame(self, Stream stream, bint is_last) except -1:
        """Take the end of a DATA frame."""
        cdef list pieces
        if stream.is_pending:
            stream.framed = stream.prefix_size + stream.received
            if not is_last:
                return 0
            if stream.prefix_size < PREFIX_SIZE or stream.received < stream.length:
                return self.demote(stream, is_last=True)
            self.check_code(lib.consume(self.session, stream.id, stream.framed))
            self.found.append(WholeCall(stream.id, stream.head, timeout_s_of(stream.timeout), stream.message))
            stream.is_pending = False
            stream.message = stream.key = stream.timeout = None
            return 0
        pieces, stream.pieces = stream.pieces, None
        data = b"" if pieces is None else pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.unacknowledged += len(data)
        self.found.append(h2.DataReceived(stream.id, data, is_last))
        return 0

    cdef int demote(self, Stream stream, bint is_last) except -1:
        """Report the request of a call that does not become whole as events. `is_last`: it has ended."""
        cdef bytes data
        stream.is_pending = False
        self.found.append(h2.RequestReceived(stream.id, request_fields(stream), False))
        data = (<const char *>stream.prefix)[:stream.prefix_size]
        if stream.received:
            data += (<const char *>PyBytes_AS_STRING(stream.message))[:stream.received]
        if stream.framed or is_last:
            self.unacknowledged += stream.framed
            self.found.append(h2.DataReceived(stream.id, data[:stream.framed], is_last))
        if <size_t>len(data) > stream.framed:
            stream.pieces = [data[stream.framed:]]
        stream.message = stream.key = stream.timeout = stream.head = None
        return 0

    cdef int take_close(self, int32_t stream_id, uint32_t code) except -1:
        cdef Stream stream = self.streams.pop(stream_id, None)
        cdef size_t size = 0
        if stream is None:
            return 0
        lib.set_stream_user_data(self.session, stream_id, NULL)
        if stream.is_pending:
            self.demote(stream, is_last=False)
        if stream.pieces is not None:  # of a frame whose end is not reported any more
            for piece in stream.pieces:
                size += len(piece)
            self.check_code(lib.consume_connection(self.session, size))
        stream.current = stream.others = None
        if stream.is_counted:
            self.left_count += 1
        else:
            self.found.append(h2.StreamClosed(stream_id, code, None))
        return 0

    # errors

    cdef Stream unanswered(self, int32_t stream_id):
        cdef Stream stream
        self.require_active()
        stream = self.streams.get(stream_id)
        if stream is None:
            raise h2.StreamUnavailableError("the stream is closed")
        if stream.has_answer:
            raise h2.StreamError("the stream has an answer")
        return stream

    cdef Stream unended(self, int32_t stream_id):
        cdef Stream stream
        self.require_active()
        stream = self.streams.get(stream_id)
        if stream is None or not stream.has_answer or stream.is_ended:
            raise h2.StreamError("the stream takes no more data")
        return stream

    cdef int resume(self, Stream stream) except -1:
        if stream.is_deferred:
            stream.is_deferred = False
            self.check(lib.resume_data(self.session, stream.id))
        return 0

    cdef int require_active(self) except -1:
        if self.is_failed:
            raise h2.ConnectionStateError("the connection is not used any more")
        if self.is_terminating:
            raise h2.ConnectionStateError("the connection has ended")
        return 0

    cdef int check(self, Py_ssize_t result) except -1:
        """Raise the error of a result. An error of the connection ends its use."""
        if result >= 0:
            return 0
        failure, self.failure = self.failure, None
        if failure is not None:
            self.fail()
            raise failure
        if lib.is_fatal(<int>result):
            self.fail()
        raise error_of(<int>result)

    cdef int check_code(self, int result) except -1:
        if result < 0:
            raise error_of(result)
        return 0

    cdef void fail(self):
        if self.session is not NULL:
            lib.session_del(self.session)
            self.session = NULL
        self.streams.clear()
        self.pending.clear()
        self.is_failed = self.is_closed = True

    cdef int update_end(self) except -1:
        """Report the end of the connection once nothing is left to read or to write."""
        if not self.is_closed and not lib.want_read(self.session) and not lib.want_write(self.session):
            self.is_terminating = self.is_closed = True
            self.found.append(h2.ConnectionClosed(self.close_code, b""))
        return 0

    cdef int failed(self, error) noexcept:
        self.failure = error
        return ERR_CALLBACK_FAILURE


cdef object error_of(int code):
    """The package's exception for an error of the library."""
    text = f"HTTP/2 engine error: {lib.strerror(code).decode()}"
    if code == ERR_NOMEM:
        return MemoryError("HTTP/2 engine ran out of memory")
    if code in (ERR_INVALID_STREAM_ID, ERR_STREAM_CLOSED, ERR_STREAM_CLOSING, ERR_STREAM_SHUT_WR):
        return h2.StreamUnavailableError(text)
    if code == ERR_DATA_EXIST:
        return h2.StreamError(text)
    if code == ERR_BAD_CLIENT_MAGIC:
        return h2.ConnectionProtocolError(text)
    if code in (ERR_FLOODED, ERR_TOO_MANY_CONTINUATIONS):
        return h2.DenialOfServiceError(text)
    return h2.InternalError(text)


# messages and fields

cdef void push(Stream stream, bytes data):
    if not PyBytes_GET_SIZE(data):
        return
    stream.queued += PyBytes_GET_SIZE(data)
    if stream.current is None:
        stream.current, stream.at = data, 0
    else:
        if stream.others is None:
            stream.others = deque()
        stream.others.append(data)


cdef int push_message(Stream stream, bytes message) except -1:
    """Push a message behind its prefix: a small one as a copy, a large one by reference."""
    cdef size_t size = PyBytes_GET_SIZE(message)
    cdef bint is_small = size < BY_REFERENCE_SIZE_MIN
    cdef bytes framed
    cdef uint8_t *place
    if size > 0xFFFFFFFF:
        raise OverflowError("a message is larger than its prefix can tell")
    framed = PyBytes_FromStringAndSize(NULL, PREFIX_SIZE + (size if is_small else 0))
    place = <uint8_t *>PyBytes_AS_STRING(framed)
    place[0], place[1], place[2] = 0, size >> 24 & 255, size >> 16 & 255
    place[3], place[4] = size >> 8 & 255, size & 255
    if is_small:
        memcpy(place + PREFIX_SIZE, PyBytes_AS_STRING(message), size)
    push(stream, framed)
    if not is_small:
        push(stream, message)
    return 0


cdef nghttp2_nv *fields_in(fields) except NULL:
    """The fields in the library's form; they live as long as `fields`. The caller frees the array."""
    cdef Py_ssize_t index, count = len(fields)
    cdef nghttp2_nv *values = <nghttp2_nv *>malloc((count + 1) * sizeof(nghttp2_nv))
    cdef bytes name, value
    if values is NULL:
        raise MemoryError
    try:
        for index in range(count):
            name, value = fields[index]
            values[index].name, values[index].name_size = <uint8_t *>PyBytes_AS_STRING(name), len(name)
            values[index].value, values[index].value_size = <uint8_t *>PyBytes_AS_STRING(value), len(value)
            values[index].flags = NV_FLAG_NONE
    except BaseException:
        free(values)
        raise
    return values


cdef nghttp2_nv *HEAD_FIELDS = fields_in(HEAD)
cdef size_t HEAD_COUNT = len(HEAD)


cdef list fields_of(bytes key):
    """The fields of a block that `note_field` wrote."""
    cdef const char *at = PyBytes_AS_STRING(key)
    cdef const char *end = at + PyBytes_GET_SIZE(key)
    cdef uint32_t[2] sizes
    cdef list fields = []
    while at < end:
        memcpy(sizes, at, sizeof(sizes))
        at += sizeof(sizes)
        fields.append((at[:sizes[0]], (at + sizes[0])[:sizes[1]]))
        at += sizes[0] + sizes[1]
    return fields


cdef tuple request_fields(Stream stream):
    """All fields of the head of a call, in their order."""
    cdef list fields = fields_of(stream.key)
    if stream.timeout is not None:
        fields.insert(stream.timeout_index, (b"grpc-timeout", stream.timeout))
    return tuple(fields)


cdef bint is_timeout(const uint8_t *value, size_t size) noexcept:
    """Whether it is a grpc-timeout: 1 to 8 digits and a unit."""
    cdef size_t index
    if size < 2 or size > TIMEOUT_SIZE_MAX:
        return False
    for index in range(size - 1):
        if value[index] < 48 or value[index] > 57:
            return False
    return value[size - 1] in (72, 77, 83, 109, 117, 110)  # H M S m u n


cdef object timeout_s_of(bytes value):
    """The seconds of a grpc-timeout that `is_timeout` has seen. None for None."""
    cdef const uint8_t *digits
    cdef Py_ssize_t index
    cdef long count = 0
    if value is None:
        return None
    digits = <const uint8_t *>PyBytes_AS_STRING(value)
    for index in range(len(value) - 1):
        count = 10 * count + digits[index] - 48
    unit = digits[len(value) - 1]
    if unit == 72:
        return count * 3600.0
    if unit == 77:
        return count * 60.0
    if unit == 83:
        return count * 1.0
    return count * (1e-3 if unit == 109 else 1e-6 if unit == 117 else 1e-9)


# callbacks of the library; `user` is the Session

cdef void set_callbacks(nghttp2_callbacks *callbacks):
    lib.set_begin_headers(callbacks, on_begin_headers)
    lib.set_header(callbacks, on_header)
    lib.set_invalid_header(callbacks, on_invalid_header)
    lib.set_data(callbacks, on_data)
    lib.set_frame(callbacks, on_frame)
    lib.set_close(callbacks, on_close)
    lib.set_not_sent(callbacks, on_not_sent)
    lib.set_sent(callbacks, on_sent)
    lib.set_send_data(callbacks, on_send_data)
    lib.set_random(callbacks, on_random)


cdef int set_options(nghttp2_option *option, opener) except -1:
    """The limits of the settings, and those of the package's `Configuration` that it does not set."""
    burst, per_s = opener.resets
    lib.option_no_auto_window_update(option, 1)
    lib.option_stream_reset_rate_limit(option, burst, per_s)
    burst, per_s = opener.defaults.glitch_rate_limit
    lib.option_glitch_rate_limit(option, burst, per_s)
    lib.option_max_continuations(option, opener.defaults.max_continuations)
    lib.option_max_settings(option, opener.defaults.max_settings)
    lib.option_max_outbound_ack(option, opener.defaults.max_outbound_ack)
    lib.option_max_send_header_block_length(option, opener.defaults.max_send_header_block_length)
    lib.option_builtin_recv_extension_type(option, FRAME_ALTSVC)
    lib.option_builtin_recv_extension_type(option, FRAME_ORIGIN)
    lib.option_builtin_recv_extension_type(option, FRAME_PRIORITY_UPDATE)
    return 0


cdef int on_begin_headers(nghttp2_session *session, const nghttp2_frame_hd *frame, void *user) noexcept:
    self = <Session>user
    self.block_size = self.header_size = self.header_count = 0
    self.timeout, self.is_odd = None, False
    return 0


cdef int on_header(
    nghttp2_session *session, const nghttp2_frame_hd *frame, const uint8_t *name, size_t name_size,
    const uint8_t *value, size_t value_size, uint8_t flags, void *user,
) noexcept:
    self = <Session>user
    try:
        return self.note_field(name, name_size, value, value_size)
    except BaseException as error:
        return self.failed(error)


cdef int on_invalid_header(
    nghttp2_session *session, const nghttp2_frame_hd *frame, const uint8_t *name, size_t name_size,
    const uint8_t *value, size_t value_size, uint8_t flags, void *user,
) noexcept:
    return ERR_TEMPORAL_CALLBACK_FAILURE  # the stream is reset


cdef int on_data(
    nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size, void *user
) noexcept:
    self = <Session>user
    cdef void *stream = lib.get_stream_user_data(session, stream_id)
    try:
        if stream is NULL:
            return self.check_code(lib.consume_connection(session, size))
        return self.take_data(<Stream>stream, data, size)
    except BaseException as error:
        return self.failed(error)


cdef int on_frame(nghttp2_session *session, const nghttp2_frame_hd *frame, void *user) noexcept:
    self = <Session>user
    cdef void *stream
    cdef bint is_last = frame.flags & FLAG_END_STREAM
    try:
        if frame.type == FRAME_DATA:
            stream = lib.get_stream_user_data(session, frame.stream_id)
            if stream is not NULL:
                return self.end_frame(<Stream>stream, is_last)
        elif frame.type == FRAME_HEADERS:
            if (<const nghttp2_headers *>frame).cat == HCAT_REQUEST:
                return self.take_head(frame.stream_id, is_last)
            stream = lib.get_stream_user_data(session, frame.stream_id)
            if stream is not NULL:
                if (<Stream>stream).is_pending:
                    self.demote(<Stream>stream, is_last=False)
                self.found.append(h2.TrailersReceived(frame.stream_id, ()))
        elif frame.type == FRAME_RST_STREAM:
            stream = lib.get_stream_user_data(session, frame.stream_id)
            if stream is not NULL and (<Stream>stream).is_pending:
                self.demote(<Stream>stream, is_last=False)
            self.found.append(h2.StreamReset(frame.stream_id, (<const nghttp2_rst_stream *>frame).error_code))
        elif frame.type == FRAME_GOAWAY:
            self.is_closing, self.close_code = True, (<const nghttp2_goaway *>frame).error_code
        return 0
    except BaseException as error:
        return self.failed(error)


cdef int on_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *user) noexcept:
    self = <Session>user
    try:
        return self.take_close(stream_id, code)
    except BaseException as error:
        return self.failed(error)


cdef Py_ssize_t on_read(
    nghttp2_session *session, int32_t stream_id, uint8_t *buffer, size_t size, uint32_t *flags, void **source,
    void *user,
) noexcept:
    """How much of an answer the next frame has; with its last bytes the trailers are submitted."""
    self = <Session>user
    cdef void *found = lib.get_stream_user_data(session, stream_id)
    cdef Stream stream
    cdef nghttp2_nv *values
    if found is NULL:
        return ERR_CALLBACK_FAILURE
    stream = <Stream>found
    if not stream.queued and not stream.is_ended:
        stream.is_deferred = True
        return ERR_DEFERRED
    if stream.queued > size:
        flags[0] |= DATA_FLAG_NO_COPY
        return size
    if stream.is_ended:
        flags[0] |= DATA_FLAG_EOF
        if stream.trailers is not None:
            flags[0] |= DATA_FLAG_NO_END_STREAM
            try:
                values = fields_in(stream.trailers)
                try:
                    self.check_code(lib.submit_trailer(session, stream_id, values, len(stream.trailers)))
                finally:
                    free(values)
                stream.trailers = None
            except BaseException as error:
                return self.failed(error)
    if stream.queued:
        flags[0] |= DATA_FLAG_NO_COPY
    return stream.queued


cdef int on_send_data(
    nghttp2_session *session, nghttp2_frame_hd *frame, const uint8_t *head, size_t size, void **source, void *user
) noexcept:
    self = <Session>user
    cdef void *stream = lib.get_stream_user_data(session, frame.stream_id)
    if stream is NULL:
        return ERR_CALLBACK_FAILURE
    if self.sent >= self.amount:
        return ERR_WOULDBLOCK
    try:
        self.put(head, FRAME_HEAD_SIZE)
        return self.put_body(<Stream>stream, size)
    except BaseException as error:
        return self.failed(error)


cdef int on_sent(nghttp2_session *session, const nghttp2_frame_hd *frame, void *user) noexcept:
    self = <Session>user
    if frame.type == FRAME_GOAWAY:
        self.is_closing, self.close_code = True, (<const nghttp2_goaway *>frame).error_code
    return 0


cdef int on_not_sent(nghttp2_session *session, const nghttp2_frame_hd *frame, int code, void *user) noexcept:
    """A head that the library refuses to send ends its stream."""
    self = <Session>user
    if frame.type != FRAME_HEADERS or code in (
        ERR_STREAM_CLOSED, ERR_STREAM_CLOSING, ERR_STREAM_SHUT_WR, ERR_SESSION_CLOSING
    ):
        return 0
    code = lib.submit_rst_stream(session, FLAG_NONE, frame.stream_id, INTERNAL_ERROR)
    if code < 0 and code not in (ERR_STREAM_CLOSED, ERR_STREAM_CLOSING, ERR_SESSION_CLOSING):
        return self.failed(error_of(code))
    return 0


cdef void on_random(uint8_t *place, size_t size) noexcept:
    memset(place, 0, size)
    try:
        memcpy(place, PyBytes_AS_STRING(os.urandom(size)), size)
    except BaseException:  # the library can't be told; without a seed its tables are in a known order
        pass
