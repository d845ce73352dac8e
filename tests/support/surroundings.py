# SPDX-License-Identifier: Apache-2.0
"""Protection from the surroundings of the tests: variables, signals, ports, a disk in use.

`make test` means the same in a terminal, in a script's background (where shells leave SIGINT ignored), behind a proxy,
with settings of a store in the environment, and on a disk that others have filled beyond the limit of a store.
"""

import contextlib
import fcntl
import functools
import importlib
import logging
import os
import random
import signal
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

STORE_SETTINGS = tuple(
    f"REPUT_{part}" for part in ("COMMITLOG_", "INDEXER_", "JANITOR_", "CLIENT_", "FAILPOINTS", "DATA_")
)
OTHERS = ("OTEL_", "NOTIFY_SOCKET", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "KEEP", "SPARK_HOME", "PYSPARK_")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY")
ANY_DISK = {
    "REPUT_COMMITLOG_DISK_FULL_PERCENT": "100",
    "REPUT_COMMITLOG_DISK_OPEN_PERCENT": "100",
    "REPUT_JANITOR_DISK_MAX_USED_PERCENT": "100",
    "REPUT_JANITOR_DISK_FORCIBLE_PERCENT": "100",
    "REPUT_JANITOR_DISK_FULL_PERCENT": "100",
}
"""Settings for the processes of a store, because the disk of the tests may be full. Flags of a test override them."""
GRPC_FORKS = "GRPC_ENABLE_FORK_SUPPORT"
PORTS = (12_000, 20_000)
"""Below the ports that `reput up` and the demo choose, and below the ports of outgoing connections in Linux.

So a port stays free until its service has started, and through a restart.
"""
RESERVED_MAX = 2_000
"""Most ports that a process reserves against others. The ports that it took first become free again."""
_reserved: deque[int] = deque()


def forget_surroundings() -> None:
    """Drop the variables that would change the behaviour of a test or of its child."""
    for name in list(os.environ):
        if name.startswith((*STORE_SETTINGS, *OTHERS)) or name.upper() in PROXIES:
            del os.environ[name]


def import_grpc_without_forks() -> None:
    """Load gRPC so that it does nothing in children of this process.

    PySpark starts its JVM by a fork. There the threads of gRPC, which other tests used, would begin again, meet closed
    files and end the child. gRPC looks at the variable once, when it is loaded; Spark's own workers must not see it.
    """
    os.environ[GRPC_FORKS] = "0"
    importlib.import_module("grpc")
    del os.environ[GRPC_FORKS]


def is_of_this_loop(record: logging.LogRecord) -> bool:
    """False for gRPC's log records about the event loop of an earlier test, which gRPC wakes after its end."""
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, RuntimeError) and "PollerCompletionQueue" in record.getMessage())


@contextlib.contextmanager
def interrupt_by_default() -> Iterator[None]:
    """Let children that are started within the block take SIGINT as in a terminal. Only in the main thread."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def free_port(*, below: int = 0) -> int:
    """A port that is not in use now and is not given to another test of this user.

    The same is true of the port that is `below` lower. Raises OSError if the file of reservations can't be opened.
    """
    reservations = _reservations()
    while True:
        port = random.randrange(*PORTS)
        with contextlib.suppress(OSError):
            for one in {port, port - below}:
                _reserve(reservations, one)
            return port


def _reserve(reservations: int, port: int) -> None:
    """Lock the port's byte of the file until this process ends, or has reserved very many more. Raises OSError."""
    if port in _reserved:
        raise BlockingIOError(f"{port} was given to another test of this process")
    fcntl.lockf(reservations, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    _reserved.append(port)
    if len(_reserved) > RESERVED_MAX:
        fcntl.lockf(reservations, fcntl.LOCK_UN, 1, _reserved.popleft())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


@functools.cache
def _reservations() -> int:
    path = Path(tempfile.gettempdir(), f"reput-test-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
