# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Text and checksums of the record format: CRC-32, Java's string hash, UTF-8, property strings.

The other kernel modules call these functions; each algorithm exists once. The caller has checked that
[start, start + size) lies inside the buffer; for any bytes, nothing is read outside of it.
The compiled CRC-32 is ISA-L's, called without the GIL through the address that the `isal` package exports.
Format: docs/formats/commit_log.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import find, is_ascii8
from cython.cimports.libs.kernel.layout import *

if cython.compiled:
    import ctypes

    from isal import isal_zlib

    crc_function = cython.cast(
        CrcFunction,
        cython.cast(
            cython.size_t,
            ctypes.cast(ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl, ctypes.c_void_p).value,
        ),
    )
else:
    import zlib


# Literals of 32 bits and more are Python integers to the compiler unless they have a C name.
NOT_A_NUMBER = cython.declare(cython.longlong, 2**62)
LAST_DIGIT_MAX = cython.declare(cython.longlong, 10**17)  # another digit still fits into 62 bits
# Powers of Java's factor 31, modulo 2^32, for eight characters in a single step.
P2 = cython.declare(cython.uint, 31**2)
P3 = cython.declare(cython.uint, 31**3)
P4 = cython.declare(cython.uint, 31**4)
P5 = cython.declare(cython.uint, 31**5)
P6 = cython.declare(cython.uint, 31**6)
P7 = cython.declare(cython.uint, 31**7 % 2**32)
P8 = cython.declare(cython.uint, 31**8 % 2**32)


@cython.final
@cython.cclass
class Property:
    """A piece of a property string: the places of its name and value. name_size 0: the piece is not well formed."""

    def __init__(self):
        self.name_start = 0
        self.name_size = 0
        self.value_start = 0
        self.value_size = 0


def crc32(source, start, size):
    """Return all 32 bits of the CRC-32, as java.util.zip.CRC32 computes it."""
    if cython.compiled:
        return crc_function(0, source + start, size)
    return zlib.crc32(source[start : start + size])


def java_hash(source, start, size, seed):
    """Return String.hashCode of UTF-8 text, unsigned. `seed` is the hash of the text before it (0 at the beginning).

    Java hashes UTF-16 units, so a sequence of four bytes counts as two surrogates. Bytes that are not UTF-8 give some
    hash, which is the same in both builds.
    """
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    unit: cython.uint
    value: cython.uint = seed
    while at < end:
        if end - at >= 8 and is_ascii8(source, at):  # so no product waits for the product of the character before
            value = value * P8 + source[at] * P7 + source[at + 1] * P6 + source[at + 2] * P5 + source[at + 3] * P4
            value = (value + source[at + 4] * P3 + source[at + 5] * P2 + source[at + 6] * 31 + source[at + 7]) & M32
            at += 8
            continue
        unit = source[at]
        if unit < 0x80:
            at += 1
        elif unit < 0xE0 and at + 1 < end:
            unit = (unit & 31) << 6 | (source[at + 1] & 63)
            at += 2
        elif unit < 0xF0 and at + 2 < end:
            unit = (unit & 15) << 12 | (source[at + 1] & 63) << 6 | (source[at + 2] & 63)
            at += 3
        elif at + 3 < end:
            unit = (unit & 7) << 18 | (source[at + 1] & 63) << 12 | (source[at + 2] & 63) << 6 | (source[at + 3] & 63)
            unit = (unit - 0x10000) & M32
            value = (value * 31 + ((0xD800 + (unit >> 10)) & 0xFFFF)) & M32
            unit = 0xDC00 + (unit & 0x3FF)
            at += 4
        else:
            at = end
        value = (value * 31 + unit) & M32
    return value


def is_utf8(source, start, size):
    """Return whether bytes are UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF."""
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    lead: cython.int
    low: cython.int
    high: cython.int
    more: cython.int
    while at < end:
        if end - at >= 8 and is_ascii8(source, at):
            at += 8
            continue
        lead = source[at]
        at += 1
        if lead < 0x80:
            continue
        low = 0x80
        high = 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if end - at < more or source[at] < low or source[at] > high:
            return False
        at += 1
        while more > 1:
            if source[at] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True


def java_int(source, start, size):
    """Return Integer.parseInt of ASCII digits with an optional sign. NOT_A_NUMBER (2^62) for any other text."""
    value: cython.longlong = java_long(source, start, size)
    if value < -2147483648 or value > 2147483647:
        return NOT_A_NUMBER
    return value


def java_long(source, start, size):
    """Return Long.parseLong in the way of `java_int`. A number of 10^18 or more may give NOT_A_NUMBER."""
    at: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    value: cython.longlong = 0
    is_negative: cython.bint = False
    if at < end and (source[at] == 45 or source[at] == 43):
        is_negative = source[at] == 45
        at += 1
    if at == end:
        return NOT_A_NUMBER
    while at < end:
        if source[at] < 48 or source[at] > 57:
            return NOT_A_NUMBER
        if value > LAST_DIGIT_MAX:
            return NOT_A_NUMBER
        value = value * 10 + (source[at] - 48)
        at += 1
    return -value if is_negative else value


def decimal_size(number):
    """Return the number of decimal digits of a number that is not negative."""
    size: cython.Py_ssize_t = 1
    while number > 9:
        number //= 10
        size += 1
    return size


def next_property(source, start, end, piece):
    """Find the piece at `start` of a property string that ends at `end`. Returns the start of the next piece.

    As RocketMQ 5.3's MessageDecoder.string2messageProperties: pieces end with 0x02 (which may be missing at the end),
    the name ends with the first 0x01, neither name nor value is empty.
    """
    stop: cython.Py_ssize_t = find(source, start, end, 2)
    middle: cython.Py_ssize_t = find(source, start, stop, 1)
    piece.name_start = start
    piece.name_size = 0
    if start < middle and middle + 1 < stop:
        piece.name_size = middle - start
        piece.value_start = middle + 1
        piece.value_size = stop - middle - 1
    return stop + 1


def checked_crc32(data):
    """Return the CRC-32 of bytes by the kernel's own function, for the import check and for tests."""
    if cython.compiled:
        view: cython.const[cython.uchar][::1] = data
        return crc32(cython.address(view[0]), 0, len(view))
    return crc32(data, 0, len(data))


if checked_crc32(b"123456789") != 0xCBF43926:
    raise ImportError("the CRC-32 of the isal package gives a wrong value for a known text")
