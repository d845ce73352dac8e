# SPDX-License-Identifier: Apache-2.0
"""Machine: the file system and the clock of a service, in a single value. A test may give it others."""

from msgspec import Struct, field

from libs.machine.clock import Clock, SystemClock
from libs.machine.fs import Fs
from libs.machine.posix_fs import PosixFs


class Machine(Struct, frozen=True):
    """The outside world of a service. The default is the real one."""

    fs: Fs = field(default_factory=PosixFs)
    clock: Clock = field(default_factory=SystemClock)
