# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False
"""Packs a plain message into the bytes of a `messages` entry, as Encoder does; anything else is left to Encoder.

Plain: texts and bytes of exactly these types, properties in a dict whose names no field has, and no delay. A message
that breaks a rule is not plain, so that its error is Encoder's. The limits of numbers are the protos'.
A message takes an id only if it is packed, so that Encoder's ids have no gap.
"""

from time import time_ns

from reput_client.core.types import NewMessage

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    void *PyUnicode_DATA(object text)

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t slot_at(PyObject *type, PyObject *name) {
        PyObject *slot = PyObject_GetAttr(type, name);
        Py_ssize_t at = -1;
        if (slot != NULL && Py_TYPE(slot) == &PyMemberDescr_Type)
            at = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_XDECREF(slot);
        return at;
    }
    """
    Py_ssize_t slot_at(object type, object name)

cdef enum:
    TEXTS_MAX = 32  # keys, and properties of a dict; more are not plain
    FIELD_COUNT = 14
    UNIQUE_ID_SIZE = 32
    NUMBER_SIZE = 12  # the digits of a unique id that differ between the messages of a producer

cdef enum Field:
    TOPIC, BODY, TAG, KEYS, PROPERTIES, QUEUE_ID, SHARDING_KEY, UNIQUE_ID, FLAG, BORN_TIME_MS, PROPERTY_STRING
    DELAY_LEVEL, DELIVER_AT, DELAY_S

cdef struct Text:
    const char *start
    Py_ssize_t size

cdef frozenset OWN_NAMES = frozenset(
    ("TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY", "DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS")
)
cdef Py_ssize_t FIELD_AT[FIELD_COUNT]
NAMES = (
    "topic", "body", "tag", "keys", "properties", "queue_id", "sharding_key", "unique_id", "flag", "born_time_ms",
    "property_string", "delay_level", "deliver_at", "delay_s",
)
for _index, _name in enumerate(NAMES):
    FIELD_AT[_index] = slot_at(NewMessage, _name)
    if FIELD_AT[_index] < 0:
        raise ImportError(f"{_name} is no slot of NewMessage")


cdef inline object _field(object message, Field field):
    """Return a field of a NewMessage without a look-up of its name. Raises AttributeError for a deleted field."""
    cdef PyObject *value = (<PyObject **>(<char *><PyObject *>message + FIELD_AT[<int>field]))[0]
    if value == NULL:
        raise AttributeError(NAMES[<int>field])
    return <object>value


cdef int64_t BORN_TIME_MS_MAX = 253_402_300_799_999
cdef const char *DIGITS = b"0123456789ABCDEF"


cdef bint _text(object value, Text *text) except -1:
    """Take a text that is not empty. Returns False for another type, for an empty text and for lone surrogates."""
    if type(value) is not str:
        return False
    try:
        text.start = PyUnicode_AsUTF8AndSize(value, &text.size)
    except UnicodeEncodeError:
        return False
    return text.size > 0


cdef inline bint _has(Text text, char byte) noexcept nogil:
    return memchr(text.start, byte, text.size) != NULL


cdef inline Py_ssize_t _varint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


cdef inline char *_put_varint(char *to, uint64_t value) noexcept nogil:
    while value > 127:
        to[0] = <char>((value & 127) | 128)
        to += 1
        value >>= 7
    to[0] = <char>value
    return to + 1


cdef inline char *_put(char *to, const char *start, Py_ssize_t size) noexcept nogil:
    memcpy(to, start, size)
    return to + size


cdef inline char *_put_property(char *to, const char *name, Py_ssize_t name_size, Text value) noexcept nogil:
    to = _put(to, name, name_size)
    to[0] = 1
    to = _put(to + 1, value.start, value.size)
    to[0] = 2
    return to + 1


cdef class Packer:
    """Packs messages of a producer. `ids` are its UniqueIds, None for messages that get no id of their own."""

    cdef object ids, count
    cdef const char *prefix
    cdef object prefix_text
    cdef bint makes_born_times
    cdef Py_ssize_t size_max
    cdef int64_t month_start_ns, month_end_ns

    def __init__(self, ids, bint makes_born_times, Py_ssize_t size_max):
        cdef Py_ssize_t size
        self.ids, self.makes_born_times, self.size_max = ids, makes_born_times, size_max
        if ids is not None:
            self.count, self.prefix_text = ids.count, ids.prefix
            self.prefix = PyUnicode_AsUTF8AndSize(self.prefix_text, &size)
            assert size == UNIQUE_ID_SIZE - NUMBER_SIZE

    def pack(self, message):
        """Return the entry and the unique id ("" without one) of a plain message, None for any other message.

        It is None also for an entry of more than `size_max` bytes.
        """
        if type(message) is not NewMessage:
            return None
        cdef int64_t now_ns = time_ns()
        cdef object unique_id = _field(message, UNIQUE_ID), born_time_ms = _field(message, BORN_TIME_MS)
        if born_time_ms is None:
            born_time_ms = now_ns // 1_000_000 if self.makes_born_times else 0
        cdef bint makes_id = not unique_id and self.ids is not None
        if makes_id:
            if not self.month_start_ns <= now_ns < self.month_end_ns:
                self.month_start_ns, self.month_end_ns = self.ids.month_of(now_ns)
            unique_id = PyUnicode_New(UNIQUE_ID_SIZE, 127)
        cdef object packed = self._pack(message, unique_id or "", born_time_ms, now_ns, makes_id)
        return None if packed is None else (packed, unique_id or "")

    cdef object _write_id(self, char *to, int64_t now_ns):
        """Write the next unique id, in the layout of UniqueIds."""
        cdef uint64_t number = <uint64_t>((now_ns - self.month_start_ns) // 1_000_000 & 0xFFFFFFFF) << 16
        cdef int digit
        number |= <uint64_t>next(self.count) & 0xFFFF
        memcpy(to, self.prefix, UNIQUE_ID_SIZE - NUMBER_SIZE)
        for digit in range(UNIQUE_ID_SIZE - 1, UNIQUE_ID_SIZE - NUMBER_SIZE - 1, -1):
            to[digit] = DIGITS[number & 15]
            number >>= 4

    cdef object _pack(self, message, object unique_id, object born_time_ms, int64_t now_ns, bint makes_id):
        cdef Text topic, tag, sharding_key, unique
        cdef Text keys[TEXTS_MAX]
        cdef Text names[TEXTS_MAX]
        cdef Text values[TEXTS_MAX]
        cdef int key_count = 0, property_count = 0, index
        cdef Py_ssize_t keys_size = 0, properties_size = 0, payload_size, at = 0
        cdef PyObject *name
        cdef PyObject *value
        cdef int64_t queue_id = 0, flag, born_ms
        cdef char *to

        cdef object body = _field(message, BODY), given = _field(message, KEYS), properties = _field(message, PROPERTIES)
        cdef object given_topic = _field(message, TOPIC), given_tag = _field(message, TAG), given_key = _field(message, SHARDING_KEY)
        cdef object given_queue = _field(message, QUEUE_ID), given_flag = _field(message, FLAG)
        if type(body) is not bytes or type(properties) is not dict or not _text(given_topic, &topic):
            return None
        if _field(message, PROPERTY_STRING) is not None or _field(message, DELAY_LEVEL) or _field(message, DELIVER_AT) is not None:
            return None
        if _field(message, DELAY_S) is not None or type(given_flag) is not int or type(born_time_ms) is not int:
            return None
        if given_queue is not None and type(given_queue) is not int:
            return None
        try:
            flag, born_ms = given_flag, born_time_ms
            if given_queue is not None:
                queue_id = given_queue
        except OverflowError:
            return None
        if not (-(1 << 31) <= flag < (1 << 31) and -(1 << 31) <= queue_id < (1 << 31) and 0 <= born_ms <= BORN_TIME_MS_MAX):
            return None

        while PyDict_Next(properties, &at, &name, &value):
            if property_count == TEXTS_MAX or not _text(<object>name, &names[property_count]):
                return None
            if not _text(<object>value, &values[property_count]) or <object>name in OWN_NAMES:
                return None
            if _has(names[property_count], 1) or _has(names[property_count], 2) or _has(values[property_count], 2):
                return None
            properties_size += names[property_count].size + values[property_count].size + 2
            property_count += 1
        if given_tag is not None:
            if not _text(given_tag, &tag) or _has(tag, 2):
                return None
            properties_size += 4 + tag.size + 2
        if type(given) is str:
            given = (given,) if given else ()
        elif type(given) is not tuple and type(given) is not list:
            return None
        for key in given:
            if key_count == TEXTS_MAX or not _text(key, &keys[key_count]) or _has(keys[key_count], 32):
                return None
            if _has(keys[key_count], 2):
                return None
            keys_size += keys[key_count].size + 1
            key_count += 1
        if key_count:
            properties_size += 4 + keys_size - 1 + 2
        if given_key is not None:
            if not _text(given_key, &sharding_key) or _has(sharding_key, 2):
                return None
            properties_size += 13 + sharding_key.size + 2
        if makes_id:
            unique.start, unique.size = <const char *>PyUnicode_DATA(unique_id), UNIQUE_ID_SIZE
            properties_size += 8 + UNIQUE_ID_SIZE + 2
        elif unique_id:
            if not _text(unique_id, &unique) or _has(unique, 2):
                return None
            properties_size += 8 + unique.size + 2

        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        payload_size = 1 + _varint_size(topic.size) + topic.size
        if given_queue is not None:
            payload_size += 1 + _varint_size(<uint64_t>queue_id)
        if body_size:
            payload_size += 1 + _varint_size(body_size) + body_size
        if properties_size:
            payload_size += 1 + _varint_size(properties_size) + properties_size
        if flag:
            payload_size += 1 + _varint_size(<uint64_t>flag)
        if born_ms:
            payload_size += 1 + _varint_size(born_ms)
        cdef Py_ssize_t size = 1 + _varint_size(payload_size) + payload_size
        if size > self.size_max:
            return None
        if makes_id:
            self._write_id(<char *>PyUnicode_DATA(unique_id), now_ns)

        packed = PyBytes_FromStringAndSize(NULL, size)
        to = PyBytes_AS_STRING(packed)
        to[0] = 0x0A
        to = _put_varint(to + 1, payload_size)
        to[0] = 0x0A
        to = _put(_put_varint(to + 1, topic.size), topic.start, topic.size)
        if given_queue is not None:
            to[0] = 0x10
            to = _put_varint(to + 1, <uint64_t>queue_id)
        if body_size:
            to[0] = 0x1A
            to = _put(_put_varint(to + 1, body_size), PyBytes_AS_STRING(body), body_size)
        if properties_size:
            to[0] = 0x2A
            to = _put_varint(to + 1, properties_size)
            for index in range(property_count):
                to = _put_property(to, names[index].start, names[index].size, values[index])
            if given_tag is not None:
                to = _put_property(to, b"TAGS", 4, tag)
            if key_count:
                to = _put(to, b"KEYS\x01", 5)
                for index in range(key_count):
                    to = _put(to, keys[index].start, keys[index].size)
                    to[0] = 32
                    to += 1
                (to - 1)[0] = 2  # in place of the last space
            if given_key is not None:
                to = _put_property(to, b"__SHARDINGKEY", 13, sharding_key)
            if unique_id:
                to = _put_property(to, b"UNIQ_KEY", 8, unique)
        if flag:
            to[0] = 0x30
            to = _put_varint(to + 1, <uint64_t>flag)
        if born_ms:
            to[0] = 0x40
            to = _put_varint(to + 1, born_ms)
        assert to - PyBytes_AS_STRING(packed) == size
        return packed
