# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False
"""Walks over the records of an answer. The fields of a record are decoded when the program reads them.

No number in the bytes is trusted. The format and the checks: docs/formats/records_in_answers.md.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from reput.common.v1.message_pb2 import Host, StoredMessage

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t item_count)

cdef enum:
    RECORD_SIZE_MIN = 91
    FLAG_BORN_IPV6 = 0x10
    FLAG_STORE_IPV6 = 0x20
    IPV6_MORE = 12
    BORN_HOST_AT = 48
    BODY_AT = 88  # with two IPv4 hosts
    DELIVERY_SIZE = 16  # the fields between the store host and the body
    PORT_SIZE = 4
    NAME_END = 1
    PROPERTY_END = 2

cdef uint32_t MAGIC_V1 = 0xDAA320A7
cdef uint32_t MAGIC_V2 = 0xDAA320AB


cdef inline uint32_t _uint32(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline int32_t _int32(const uint8_t *at) noexcept nogil:
    return <int32_t>_uint32(at)


cdef inline int64_t _int64(const uint8_t *at) noexcept nogil:
    return <int64_t>(<uint64_t>_uint32(at) << 32 | _uint32(at + 4))


cdef inline int16_t _int16(const uint8_t *at) noexcept nogil:
    return <int16_t>(<uint32_t>at[0] << 8 | at[1])


cdef inline bytes _bytes(const uint8_t *start, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>start, size)


cdef inline str _text(const uint8_t *start, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>start, size, NULL)


cdef object _host(const uint8_t *start, const uint8_t *end):
    end -= PORT_SIZE
    return Host(address=_bytes(start, end - start), port=_int32(end))


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Record:
    """A record with the fields of a StoredMessage. It keeps the bytes of the whole answer in memory."""

    cdef bytes answer
    cdef readonly str topic
    cdef dict known_properties
    cdef const uint8_t *start
    cdef int32_t size, body_at, topic_size, properties_at

    cdef int open(self, const uint8_t *start, Py_ssize_t left, Record before) except -1:
        """Find the parts of the record. A record with the topic of `before` shares it. Raises ValueError."""
        cdef Py_ssize_t size, body_at, body_size, topic_at, topic_size, end, topic_size_size = 1
        cdef uint32_t magic, flag
        if left < RECORD_SIZE_MIN:
            raise ValueError(f"only {left} bytes are left")
        size, magic, flag = _int32(start), _uint32(start + 4), _uint32(start + 36)
        if size < RECORD_SIZE_MIN or size > left:
            raise ValueError(f"its size is {size}, and {left} bytes are left")
        if magic == MAGIC_V2:
            topic_size_size = 2
        elif magic != MAGIC_V1:
            raise ValueError(f"its magic is {magic:08x}")
        end = size - 2  # where a record without properties has their size
        body_at = BODY_AT + (IPV6_MORE if flag & FLAG_BORN_IPV6 else 0) + (IPV6_MORE if flag & FLAG_STORE_IPV6 else 0)
        if body_at + topic_size_size > end:
            raise ValueError(f"its {size} bytes are too few for its hosts")
        body_size = _int32(start + body_at - 4)
        if body_size < 0 or body_size > end - topic_size_size - body_at:
            raise ValueError(f"its body has {body_size} bytes, and the record {size}")
        topic_at = body_at + body_size + topic_size_size
        topic_size = <int8_t>start[topic_at - 1] if topic_size_size == 1 else _int16(start + topic_at - 2)
        if topic_size < 0 or topic_size > end - topic_at:
            raise ValueError(f"its topic has {topic_size} bytes, and the record {size}")
        if _int16(start + topic_at + topic_size) != end - topic_at - topic_size:
            raise ValueError(f"its properties do not end with its {size} bytes")
        self.start, self.size, self.body_at, self.topic_size = start, size, body_at, topic_size
        self.properties_at = topic_at + topic_size + 2
        if before is not None and before.has_topic(start + topic_at, topic_size):
            self.topic = before.topic
            return 0
        try:
            self.topic = _text(start + topic_at, topic_size)
        except UnicodeDecodeError:
            raise ValueError("its topic is not UTF-8") from None
        return 0

    cdef inline bint has_topic(self, const uint8_t *topic, Py_ssize_t size) noexcept:
        return self.topic_size == size and memcmp(self.start + self.properties_at - 2 - size, topic, size) == 0

    cdef inline const uint8_t *store_time(self) noexcept:
        return self.start + 56 + (IPV6_MORE if _uint32(self.start + 36) & FLAG_BORN_IPV6 else 0)

    cdef inline const uint8_t *store_host_end(self) noexcept:
        return self.start + self.body_at - DELIVERY_SIZE

    @property
    def queue_id(self):
        return _int32(self.start + 12)

    @property
    def flag(self):
        return _int32(self.start + 16)

    @property
    def queue_offset(self):
        return _int64(self.start + 20)

    @property
    def physical_offset(self):
        return _int64(self.start + 28)

    @property
    def sys_flag(self):
        return _int32(self.start + 36)

    @property
    def born_time_ms(self):
        return _int64(self.start + 40)

    @property
    def born_host(self):
        return _host(self.start + BORN_HOST_AT, self.store_time())

    @property
    def store_time_ms(self):
        return _int64(self.store_time())

    @property
    def store_host(self):
        return _host(self.store_time() + 8, self.store_host_end())

    @property
    def reconsume_times(self):
        return _int32(self.store_host_end())

    @property
    def prepared_transaction_offset(self):
        return _int64(self.store_host_end() + 4)

    @property
    def record_size_bytes(self):
        return self.size

    @property
    def offset_message_id(self):
        cdef const uint8_t *host = self.store_time() + 8
        return (_bytes(host, self.store_host_end() - host) + _bytes(self.start + 28, 8)).hex().upper()

    @property
    def body(self):
        return _bytes(self.start + self.body_at, _int32(self.start + self.body_at - 4))

    @property
    def properties(self):
        if self.known_properties is None:
            self.known_properties = _properties(self.start + self.properties_at, self.start + self.size)
        return self.known_properties

    @property
    def raw_properties(self):
        cdef const uint8_t *start = self.start + self.properties_at
        cdef Py_ssize_t size = self.size - self.properties_at
        return b"" if _is_utf8(start, size) else _bytes(start, size)

    def __eq__(self, other):
        if isinstance(other, Record):
            return self.stored() == other.stored()
        return self.stored() == other if isinstance(other, StoredMessage) else NotImplemented

    def __reduce__(self):
        return self.stored().__reduce__()

    def stored(self):
        """Return the StoredMessage of the record."""
        names = [field.name for field in StoredMessage.DESCRIPTOR.fields]
        return StoredMessage(**{name: getattr(self, name) for name in names})


cdef bint _is_utf8(const uint8_t *start, Py_ssize_t size) except -1:
    cdef Py_ssize_t at = 0
    while at < size and start[at] < 128:
        at += 1
    if at == size:
        return True
    try:
        _text(start, size)
    except UnicodeDecodeError:
        return False
    return True


cdef inline str _name(const uint8_t *start, Py_ssize_t size):
    """Return the name of a property. All records share the frequent names."""
    if size == 4 and memcmp(start, b"TAGS", 4) == 0:
        return "TAGS"
    if size == 4 and memcmp(start, b"KEYS", 4) == 0:
        return "KEYS"
    if size == 8 and memcmp(start, b"UNIQ_KEY", 8) == 0:
        return "UNIQ_KEY"
    return _text(start, size)


cdef dict _properties(const uint8_t *at, const uint8_t *end):
    """Return the properties of a property string. A string that is not UTF-8 has none."""
    cdef dict found = {}
    cdef const uint8_t *stop
    cdef const uint8_t *middle
    if not _is_utf8(at, end - at):
        return found
    while at < end:
        stop = <const uint8_t *>memchr(at, PROPERTY_END, end - at)
        if stop == NULL:
            stop = end
        middle = <const uint8_t *>memchr(at, NAME_END, stop - at)
        if middle != NULL and at < middle and middle + 1 < stop:
            if middle - at != 8 or memcmp(at, b"__CRC32#", 8) != 0:
                found[_name(at, middle - at)] = _text(middle + 1, stop - middle - 1)
        at = stop + 1
    return found


def messages_of(bytes answer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, type kind):
    """Return a message of type `kind` for each record in these bytes of an answer, with the record as its `_raw`.

    Raises ValueError unless the bytes are exactly `count` sound records.
    """
    cdef const uint8_t *at
    cdef Py_ssize_t index, left = end - start
    cdef Record record, before = None
    cdef list messages = []
    assert 0 <= start <= end <= PyBytes_GET_SIZE(answer)
    if count < 0 or count > left // RECORD_SIZE_MIN:
        raise ValueError(f"{count} records are announced, and there are {left} bytes")
    at = <const uint8_t *>PyBytes_AS_STRING(answer) + start
    for index in range(count):
        record = Record.__new__(Record)
        record.answer = answer
        try:
            record.open(at, left, before)
        except ValueError as error:
            raise ValueError(f"record {index} of {count} is not sound: {error}") from None
        at += record.size
        left -= record.size
        message = PyType_GenericAlloc(kind, 0)
        message._raw = record
        messages.append(message)
        before = record
    if left:
        raise ValueError(f"{left} bytes lie behind the last of {count} records")
    return messages


cdef Py_ssize_t _varint(
    const uint8_t *start, Py_ssize_t at, Py_ssize_t end, int size_max, uint64_t *value
) noexcept nogil:
    """Read a number of protobuf's wire format, of `size_max` bytes at most. Returns the position behind it, or -1."""
    cdef int index
    value[0] = 0
    for index in range(size_max):
        if at == end:
            return -1
        value[0] |= <uint64_t>(start[at] & 127) << 7 * index
        at += 1
        if start[at - 1] < 128:
            return at
    return -1


def split(bytes answer, int number):
    """Return the bytes of an answer without the bytes field of this number, and the bounds of its value.

    An answer is returned whole, with (0, 0), if it has no such field, several, or is not in protobuf's wire format.
    """
    cdef const uint8_t *source = <const uint8_t *>PyBytes_AS_STRING(answer)
    cdef Py_ssize_t at = 0, end = PyBytes_GET_SIZE(answer), field_at, found_at = 0, found_start = 0, found_end = 0
    cdef uint64_t key, value
    while at < end:
        field_at = at
        at = _varint(source, at, end, 5, &key)
        if at < 0:
            return answer, 0, 0
        if key & 7 == 0:
            at = _varint(source, at, end, 10, &value)
            if at < 0:
                return answer, 0, 0
            continue
        if key & 7 == 2:
            at = _varint(source, at, end, 5, &value)
        else:
            value = 8 if key & 7 == 1 else 4
        if at < 0 or value > <uint64_t>(end - at) or key & 7 == 3 or key & 7 == 4 or key & 7 > 5:
            return answer, 0, 0
        if key == <uint64_t>(number << 3 | 2):
            if found_end:
                return answer, 0, 0
            found_at, found_start, found_end = field_at, at, at + <Py_ssize_t>value
        at += <Py_ssize_t>value
    if not found_end:
        return answer, 0, 0
    return answer[:found_at] + answer[found_end:], found_start, found_end
