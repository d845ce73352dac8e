# SPDX-License-Identifier: Apache-2.0
"""`reput`: loads the commands and runs one. Little else is imported here, so that a Ctrl-C is quiet from the start."""

import contextlib
import gc
import os
import signal
import sys
import threading

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""
SERVING = {"serve", "up"}
"""Commands that run services, which are taken apart in order."""
YOUNG_OBJECTS_MAX = 100_000
"""So many objects before the collector looks for circles: what a short command imports are fewer, and it has none."""


def command() -> int:
    """Be the `reput` process: run a command, and end at once when it is done.

    To take everything apart that was imported would take a fifth of the time of a short command, and nobody needs it:
    what a command opens it closes itself. A word of SERVING among the arguments, whatever it stands for, makes it slow.
    """
    if not SERVING.isdisjoint(sys.argv):
        return main()
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    from cli.connection.lean import install  # a command that runs services uses most of what this puts off

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
    from cli.registry import run  # takes a while, in which an exception could come out anywhere

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(command())
