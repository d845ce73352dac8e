# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, initializedcheck=False
# Byte primitives of the compiled kernel; _bytes.py is the plain Python twin with the same names and results.
# The callers check bounds; these functions do not.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memchr, memcmp, memcpy

cdef extern from *:
    """
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define REPUT_SWAP16(v) __builtin_bswap16(v)
    #define REPUT_SWAP32(v) __builtin_bswap32(v)
    #define REPUT_SWAP64(v) __builtin_bswap64(v)
    #else
    #error "the kernel is written for little-endian machines"
    #endif
    #define REPUT_IS_ASCII8(v) (((v) & 0x8080808080808080ULL) == 0)
    """
    unsigned short REPUT_SWAP16(unsigned short) noexcept nogil
    unsigned int REPUT_SWAP32(unsigned int) noexcept nogil
    unsigned long long REPUT_SWAP64(unsigned long long) noexcept nogil
    bint REPUT_IS_ASCII8(unsigned long long) noexcept nogil

ctypedef const unsigned char *Source
ctypedef unsigned char *Target


cdef inline Source source_of(const unsigned char[::1] view) noexcept nogil:
    return &view[0]


cdef inline Target target_of(unsigned char[::1] view) noexcept nogil:
    return &view[0]


cdef inline int get_int16(Source source, Py_ssize_t at) noexcept nogil:
    cdef unsigned short value
    memcpy(&value, source + at, 2)
    return <short>REPUT_SWAP16(value)


cdef inline int get_int32(Source source, Py_ssize_t at) noexcept nogil:
    cdef unsigned int value
    memcpy(&value, source + at, 4)
    return <int>REPUT_SWAP32(value)


cdef inline long long get_int64(Source source, Py_ssize_t at) noexcept nogil:
    cdef unsigned long long value
    memcpy(&value, source + at, 8)
    return <long long>REPUT_SWAP64(value)


cdef inline void put_int16(Target target, Py_ssize_t at, long long number) noexcept nogil:
    cdef unsigned short value = REPUT_SWAP16(<unsigned short>number)
    memcpy(target + at, &value, 2)


cdef inline void put_int32(Target target, Py_ssize_t at, long long number) noexcept nogil:
    cdef unsigned int value = REPUT_SWAP32(<unsigned int>number)
    memcpy(target + at, &value, 4)


cdef inline void put_int64(Target target, Py_ssize_t at, long long number) noexcept nogil:
    cdef unsigned long long value = REPUT_SWAP64(<unsigned long long>number)
    memcpy(target + at, &value, 8)


cdef inline void copy(Target target, Py_ssize_t target_at, Source source, Py_ssize_t source_at, Py_ssize_t size) noexcept nogil:
    memcpy(target + target_at, source + source_at, size)


cdef inline void put_text(Target target, Py_ssize_t at, const char *text, Py_ssize_t size) noexcept nogil:
    memcpy(target + at, text, size)


cdef inline bint equal(Source left, Py_ssize_t left_at, Source right, Py_ssize_t right_at, Py_ssize_t size) noexcept nogil:
    return memcmp(left + left_at, right + right_at, size) == 0


cdef inline bint matches(Source source, Py_ssize_t at, const char *text, Py_ssize_t size) noexcept nogil:
    return memcmp(source + at, text, size) == 0


cdef inline Py_ssize_t find(Source source, Py_ssize_t start, Py_ssize_t end, int byte) noexcept nogil:
    cdef Source found
    if start >= end:
        return end
    found = <Source>memchr(source + start, byte, end - start)
    return end if found == NULL else found - source


cdef inline bint is_ascii8(Source source, Py_ssize_t at) noexcept nogil:
    cdef unsigned long long value
    memcpy(&value, source + at, 8)
    return REPUT_IS_ASCII8(value)


cdef inline object new_bytes(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline Target new_bytes_target(object made) noexcept:
    return <Target>PyBytes_AS_STRING(made)


cdef inline object finish_bytes(object made):
    return made
