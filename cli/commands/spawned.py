# SPDX-License-Identifier: Apache-2.0
"""A service as a child of `reput up`: `python -m cli.commands.spawned PARENT SERVICE FLAG…`.

Invariant: the child does not outlive its parent. The kernel is asked to send SIGTERM when the parent dies; a parent
that died before that is detected by its process id. Called by `reput up` only; Linux.
"""

import ctypes
import os
import signal
import sys

from cli.commands.serve import run_service

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> int:
    """Tie this process to its parent and run the service."""
    parent, service, *flags = arguments
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        return 1
    return run_service(service, flags)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
