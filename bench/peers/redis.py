# SPDX-License-Identifier: Apache-2.0
"""Redis Streams: a server with an append-only file, four streams, and the Go client rueidis.

The streams live in memory and are not trimmed: the load generator stops at 4 GiB of bodies, well below `maxmemory`.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.peers import go_build, java_build
from bench.peers.peer import Durability, Operation, PeerMissing, Serving

READY = "Ready to accept connections"
REDIS_CLIENT = "github.com/redis/rueidis"

SERVER: Mapping[str, str] = {
    # The append-only file alone keeps the data; snapshots would write everything a second time.
    "save": "",
    "appendonly": "yes",
    # A rewrite forks and writes the commands that are already in the file: an append-only load has nothing that it
    # could drop.
    "auto-aof-rewrite-percentage": "0",
    # An error is better than a server that the system kills; nothing is evicted.
    "maxmemory": "8gb",
    "maxmemory-policy": "noeviction",
}
APPENDFSYNC: Mapping[Durability, str] = {"async": "everysec", "sync": "always"}
CONNECTIONS: Mapping[Durability, int] = {
    "async": 4,
    # A single fsync serves the commands of all connections in a turn of the event loop, 16 KiB at most of each.
    "sync": 16,
}


class Redis:
    """A server with an empty append-only file for each measurement."""

    name = "Redis Streams"
    operations: frozenset[Operation] = frozenset({"append", "latency", "read", "receive"})

    def settings(self, durability: Durability) -> Mapping[str, str]:
        """Return the server's settings and the client's."""
        return {
            **_server(durability),
            "client.append": f"XADD, pipelines of --batch, one on each of {CONNECTIONS[durability]} connections",
            "client.latency": "XADD, all callers on one connection, which rueidis pipelines",
            "client.read": "XRANGE COUNT 1000 of the four streams in one pipeline",
            "client.receive": "XREADGROUP of a part of --callers of each of the four streams, and XACK of each message",
        }

    def prepare(self) -> Mapping[str, str]:
        """Find the server and build its load generator."""
        if shutil.which("redis-server") is None:
            raise PeerMissing("redis-server not found: apt-get install -y redis-server")
        go_build.build()
        return {
            "redis-server": _redis_version(),
            REDIS_CLIENT: go_build.release(REDIS_CLIENT),
            "go": go_build.go_version(),
        }

    @contextmanager
    def running(self, folder: Path, durability: Durability) -> Iterator[Serving]:
        """Serve from the folder."""
        port = java_build.free_port()
        settings = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), **_server(durability)}
        words = ["redis-server", *(word for name, value in settings.items() for word in (f"--{name}", value))]
        with java_build.servers(java_build.Start(words=words, log_path=folder / "redis.log", ready=READY)) as pids:
            yield Serving(
                target=f"127.0.0.1:{port}",
                pids=pids,
                load_command=(go_build.program("redisload"),),
                load_arguments={"append": ("--connections", str(CONNECTIONS[durability]))},
            )


def _server(durability: Durability) -> Mapping[str, str]:
    return {**SERVER, "appendfsync": APPENDFSYNC[durability]}


def _redis_version() -> str:
    """Return the server's version, such as 7.0.15."""
    done = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
    return next(word.removeprefix("v=") for word in done.stdout.split() if word.startswith("v="))
