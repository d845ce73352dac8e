# SPDX-License-Identifier: Apache-2.0
"""`reput`: loads the commands and runs the given command.

Little else is imported here, so that a Ctrl-C is quiet from the start.
"""

import contextlib
import gc
import os
import signal
import sys
import threading

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""
SERVING = {"serve", "up", "mcp"}
"""Commands that serve until they are told to stop, and must be shut down in order."""
YOUNG_OBJECTS_MAX = 100_000
"""Number of objects at which the garbage collector runs: a short command imports fewer, and has no cycles."""


def command() -> int:
    """Run a command as the `reput` process, and end the process at once when it is done.

    The normal shutdown of all imported modules would take a fifth of the time of a short command, and is not needed: a
    command closes all that it opens. With a word of SERVING among the arguments, in any meaning, the shutdown is
    normal.
    """
    if not SERVING.isdisjoint(sys.argv):
        return main()
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    from cli.connection.lean import install  # a command that runs services uses most of the modules that this defers

    install()
    try:
        code = main()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main() -> int:
    """Run a command and return its exit code, or raise SystemExit with it."""
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from cli.registry import run  # takes a while, in which an exception could be raised anywhere

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(command())
