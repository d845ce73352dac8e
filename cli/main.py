# SPDX-License-Identifier: Apache-2.0
"""`reput`: loads the commands and runs one. Nothing else is imported here, so that a Ctrl-C is quiet from the start."""

import os
import signal
import sys
import threading

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


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
    sys.exit(main())
