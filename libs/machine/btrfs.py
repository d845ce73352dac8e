# SPDX-License-Identifier: Apache-2.0
"""btrfs with copy-on-write: the only file system where reserved blocks do not protect a mapped write.

There a rewrite of a page takes a new block. So on a full disk, a store into the mapping raises SIGBUS and the process
dies. The attribute NOCOW on the directory prevents this, if it is set before files are created there. This module sets
it, or refuses the directory.
"""

import ctypes
import errno
import fcntl
import os
import struct
from pathlib import Path

from libs.machine.errors import FileSystemUnsuited

BTRFS_SUPER_MAGIC = 0x9123683E  # linux/magic.h
FS_IOC_GETFLAGS = 0x80086601  # linux/fs.h, for 64-bit longs
FS_IOC_SETFLAGS = 0x40086602
FS_NOCOW_FL = 0x00800000

_LIBC = ctypes.CDLL(None, use_errno=True)
_FLAGS = struct.Struct("l")
_STATFS_SIZE_BYTES_MAX = 256  # struct statfs has 120 bytes on 64-bit Linux; its first field is the type


def file_system_type(path: Path) -> int:
    """Return the magic number of the file system that holds `path`, from statfs(2). Raises OSError."""
    facts = ctypes.create_string_buffer(_STATFS_SIZE_BYTES_MAX)
    if _LIBC.statfs(os.fsencode(path), facts) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    return int(struct.unpack_from("q", facts.raw)[0]) & 0xFFFFFFFF


def ensure_not_copy_on_write(directory: Path) -> None:
    """Make sure that new files in the directory are not copy-on-write. Raises FileSystemUnsuited when that fails."""
    if file_system_type(directory) != BTRFS_SUPER_MAGIC:
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = _FLAGS.unpack(fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, _FLAGS.pack(0)))[0]
        if not flags & FS_NOCOW_FL:
            fcntl.ioctl(descriptor, FS_IOC_SETFLAGS, _FLAGS.pack(flags | FS_NOCOW_FL))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTTY, errno.EOPNOTSUPP):
            raise FileSystemUnsuited(directory) from error
        raise
    finally:
        os.close(descriptor)
