# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: F821, ARG001 - names of C: memory is declared in bus_error_cy.pxd, arguments are those of a signal handler
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Ends the process with a line that names the file, when a page of a mapped file is missing (SIGBUS).

This happens when another program made the file shorter, or when its disk can't read the page. The process then answers
and acknowledges nothing; the next start recovers, and reports its findings. This code runs in a signal handler: no
Python, no memory from the heap. /proc/self/maps lists the mapped files (proc(5)). Only the compiled kernel has the
handler; with the sources, the system ends the process without a message. Linux.
"""

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy, memmove, strlen
    from cython.cimports.posix.fcntl import O_RDONLY
    from cython.cimports.posix.fcntl import open as open_file
    from cython.cimports.posix.signal import SA_SIGINFO, sigaction, sigaction_t, sigemptyset
    from cython.cimports.posix.unistd import _exit, read, write

SIGBUS = cython.declare(cython.int, 7)
STANDARD_ERROR = cython.declare(cython.int, 2)
EXIT_CODE = cython.declare(cython.int, 1)
HEAD_SIZE = cython.declare(cython.Py_ssize_t, 512)
TAIL_SIZE = cython.declare(cython.Py_ssize_t, 64)
WINDOW_SIZE = cython.declare(cython.Py_ssize_t, 8192)  # a line is at most five columns and PATH_MAX
LINE_END = cython.declare(cython.char, 10)
SPACE = cython.declare(cython.char, 32)
HYPHEN = cython.declare(cython.char, 45)


def watch(before, after):
    """Install the handler: it writes `before`, "FILE at byte N" and `after` to standard error, and exits with code 1.

    Returns whether it is installed. Raises ValueError for texts of 512 and 64 bytes or more.
    """
    if len(before) >= HEAD_SIZE or len(after) >= TAIL_SIZE:
        raise ValueError("the line is too long")
    if not cython.compiled:
        return False
    action: sigaction_t
    memcpy(head, cython.cast(cython.p_char, before), len(before) + 1)
    memcpy(tail, cython.cast(cython.p_char, after), len(after) + 1)
    sigemptyset(cython.address(action.sa_mask))
    action.sa_flags = SA_SIGINFO
    action.sa_sigaction = on_bus_error
    return sigaction(SIGBUS, cython.address(action), cython.NULL) == 0


def on_bus_error(number, info, context):
    """Handle the signal: write the line, and end the process."""
    say(head, strlen(head))
    tell_place(cython.cast(cython.ulonglong, info.si_addr))
    say(tail, strlen(tail))
    _exit(EXIT_CODE)


def tell_place(address):
    """Write the file that is mapped at an address, and the position in it, from the lines of /proc/self/maps."""
    descriptor: cython.int = open_file(b"/proc/self/maps", O_RDONLY)
    used: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    got: cython.Py_ssize_t = read(descriptor, window, WINDOW_SIZE)
    while got > 0:
        used += got
        start = 0
        end = behind(start, used, LINE_END)
        while end > 0:
            if tell_if_there(start, end - 1, address):
                return
            start = end
            end = behind(start, used, LINE_END)
        used -= start
        memmove(window, window + start, used)
        got = read(descriptor, window + used, WINDOW_SIZE - used)
    say(b"a file that is not known any more", 33)


def tell_if_there(at, end, address):
    """Write file and position if the line [at, end) contains the address. Returns whether it does.

    A line is: begin-end, rights, offset, device, inode, path.
    """
    begin: cython.ulonglong = hexadecimal(at, HYPHEN)
    past: cython.ulonglong = hexadecimal(behind(at, end, HYPHEN), SPACE)
    offset: cython.ulonglong
    column: cython.int
    if address < begin or address >= past:
        return False
    for column in range(2):  # noqa: B007
        at = behind(at, end, SPACE)
    offset = hexadecimal(at, SPACE)
    for column in range(3):  # noqa: B007
        at = behind(at, end, SPACE)
    while at < end and window[at] == SPACE:
        at += 1
    say(window + at, end - at)
    say(b" at byte ", 9)
    say_number(offset + address - begin)
    return True


def hexadecimal(at, until):
    """Return the number at `at`, whose hexadecimal digits end before the character `until`."""
    number: cython.ulonglong = 0
    while window[at] != until and at < WINDOW_SIZE - 1:
        number = number * 16 + (window[at] - 48 if window[at] < 58 else window[at] - 87)
        at += 1
    return number


def behind(at, end, mark):
    """Return the place behind the next `mark` in [at, end), 0 if there is none."""
    while at < end:
        at += 1
        if window[at - 1] == mark:
            return at
    return 0


def say_number(number):
    """Write a number in decimal digits."""
    digits: cython.char[20]
    at: cython.Py_ssize_t = 20
    while True:
        at -= 1
        digits[at] = 48 + number % 10
        number //= 10
        if number == 0:
            break
    say(cython.cast(cython.p_char, digits) + at, 20 - at)


def say(text, size):
    """Write a text to standard error. Bytes that can't be written are lost."""
    while size > 0:
        written: cython.Py_ssize_t = write(STANDARD_ERROR, text, size)
        if written <= 0:
            return
        text += written
        size -= written
