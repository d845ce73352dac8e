# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own store as a process that obeys orders (java/src/main/java/reput/interop/StoreTool.java).

Maven gets the release from Maven Central and compiles the Java side once. The classes are used until a source
changes. A machine without Java or Maven is an error, never a reason to skip.
"""

import asyncio
import fcntl
import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from libs.formats.state.system_topics import STATE_TOPIC
from tests.interop.rocketmq.stored import Draft, Queue, Sizes, Stored, encoder, shown

JAVA_DIRECTORY = Path(__file__).parent / "java"
BUILD_DIRECTORY = Path(__file__).resolve().parents[3] / ".cache" / "interop"  # as the pom has it
RELEASES = {"4": "4.9.8", "5": "5.3.3"}
"""Major number, which names the Maven profile and the Java class, to the release."""

ANSWER_SIZE_MAX = 1 << 30
# RocketMQ unmaps files through classes that Java hides by default; index files are named by the local time.
JVM_FLAGS = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Duser.timezone=UTC",
    "-Drocketmq.log.root.level=ERROR",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class ToolMissing(Exception):
    """Java or Maven is missing."""


class RocketMqEnded(Exception):
    """The process ended although it had orders."""


class _Placed(msgspec.Struct, frozen=True):
    placed: list[tuple[int, int, int]]


class QueueTags(msgspec.Struct, frozen=True):
    """The tags codes of a queue, and the number of them that came from extensions."""

    topic: str
    queue_id: int
    codes: list[int]
    extended_count: int


class _Tags(msgspec.Struct, frozen=True):
    queues: list[QueueTags]


class _Queues(msgspec.Struct, frozen=True):
    queues: list[Queue]


class _Messages(msgspec.Struct, frozen=True):
    messages: list[Stored]


class _Found(msgspec.Struct, frozen=True):
    found: list[list[int]]


def command(major: str, main: str = "") -> list[str]:
    """Return the command line of the Java side, built first if necessary. Raises ToolMissing or CalledProcessError."""
    return ["java", *JVM_FLAGS, "-cp", _class_path(major), f"reput.interop.{main or f'Release{major}'}"]


@functools.cache
def _class_path(major: str) -> str:
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ToolMissing(f"{', '.join(missing)} not found: interop needs a JDK 17 and Maven 3.8 (Debian: maven)")
    target = BUILD_DIRECTORY / RELEASES[major]
    class_path = target / "classpath.txt"
    sources = [JAVA_DIRECTORY / "pom.xml", *(JAVA_DIRECTORY / "src").rglob("*.*")]
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not class_path.exists() or class_path.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            class_path.unlink(missing_ok=True)
            maven = ["mvn", "--quiet", "--batch-mode", "compile", f"-Drelease={major}"]
            subprocess.run(maven, cwd=JAVA_DIRECTORY, check=True)
    return f"{target / 'classes'}{os.pathsep}{class_path.read_text().strip()}"


class Servant:
    """A process of RocketMQ under orders. It is killed at the end of the block if it still runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, major: str, main: str = "") -> Self:
        """Start the process, which waits for orders."""
        process = await asyncio.create_subprocess_exec(
            *command(major, main),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=ANSWER_SIZE_MAX,
        )
        return cls(process)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            await self.kill()

    async def ask(self, order: str, answer: type[Any], **fields: Any) -> Any:
        """Give an order and return its answer. Raises RocketMqEnded."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.write(encoder.encode({"do": order, **fields}) + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RocketMqEnded(f"at {order}: {(await self._process.stderr.read()).decode()}")
        return msgspec.json.decode(line, type=answer)

    async def stop(self) -> None:
        """Stop in order, after which RocketMQ leaves no mark of an unclean stop."""
        assert (await self.ask("stop", dict[str, bool])) == {"is_unclean": False}
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await self._process.wait() == 0

    async def kill(self) -> None:
        """SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


class RocketMqStore(Servant):
    """A store that is open in a process. `open` makes it."""

    @classmethod
    async def open(
        cls,
        major: str,
        directory: Path,
        sizes: Sizes,
        *,
        crc_property: bool = False,
        verify_crc: bool = False,
        index_safe: bool = False,
        delivers: bool = False,
        log_dirs: str = "",
        features: Sequence[str] = (),
    ) -> Self:
        """Load and start a store and wait until everything is in the indexes. Raises RocketMqEnded.

        Only 4.9 can deliver delayed messages; in 5.x that is the broker's. Features are off by default: `light` queues,
        `ext` for extensions of consume queues, and the `timer` wheel.
        """
        store = await cls.start(major)
        settings = msgspec.structs.asdict(sizes)
        flags = {"crc_property": crc_property, "verify_crc": verify_crc}
        flags |= {"index_safe": index_safe, "delivers": delivers}
        places = {"directory": str(directory), "log_dirs": log_dirs}
        await store.ask("open", dict[str, Any], features=features, **places, **settings, **flags)
        return store

    async def put(self, drafts: Sequence[Draft]) -> list[tuple[int, int, int]]:
        """Put messages singly, and return (physical offset, queue offset, store time) for each."""
        placed: list[tuple[int, int, int]] = (await self.ask("put", _Placed, messages=drafts)).placed
        return placed

    async def put_batch(self, drafts: Sequence[Draft]) -> list[tuple[int, int, int]]:
        """Put messages of a queue as a batch. All get born time, hosts and system flag of the first."""
        placed: list[tuple[int, int, int]] = (await self.ask("put_batch", _Placed, messages=drafts)).placed
        return placed

    async def put_inner_batch(self, drafts: Sequence[Draft], properties: dict[str, str]) -> tuple[int, int, int]:
        """Put messages as a single record with these properties, as a topic of type BatchCQ has it.

        Return its place.
        """
        (placed,) = (await self.ask("put_inner_batch", _Placed, messages=drafts, properties=properties)).placed
        return tuple(placed)

    async def make_topic(self, name: str, **attributes: str) -> None:
        """Create a topic of 5.x with attributes, whose names have underscores in place of their dots."""
        named = {key.replace("_", "."): value for key, value in attributes.items()}
        await self.ask("make_topic", dict[str, Any], name=name, attributes=named)

    async def tags(self) -> list[QueueTags]:
        """Return the tags codes of all queues that have messages, as filters see them."""
        queues: list[QueueTags] = (await self.ask("tags", _Tags)).queues
        return [queue for queue in queues if queue.codes]

    async def timer_count(self) -> int:
        """Return the number of messages that wait in the timer wheel."""
        count: int = (await self.ask("timer", dict[str, int]))["count"]
        return count

    async def delete_topic(self, name: str) -> None:
        """Remove the queues of a topic, with their counters. The records stay in the log."""
        await self.ask("delete_topic", dict[str, Any], name=name)

    async def settle(self) -> int:
        """Wait until everything is indexed, and return the end of the log."""
        end: int = (await self.ask("settle", dict[str, int]))["max_physical_offset"]
        return end

    async def read(self) -> list[Queue]:
        """Return every message by its queue offset. Queues that never had a message are left out."""
        queues: list[Queue] = (await self.ask("read", _Queues)).queues
        return [
            msgspec.structs.replace(queue, messages=list(map(shown, queue.messages)))
            for queue in queues
            if queue.max_queue_offset and queue.topic != STATE_TOPIC
        ]

    async def walk(self) -> list[Stored]:
        """Every message in the order of the log, except Reput's own messages."""
        found: list[Stored] = (await self.ask("walk", _Messages)).messages
        return [shown(message) for message in found if message.topic != STATE_TOPIC]

    async def by_keys(
        self, keys: Sequence[tuple[str, str]], *, start_time_ms: int = 0, last_time_ms: int = 2**62, count: int = 64
    ) -> list[list[int]]:
        """Return the physical offsets that RocketMQ finds for each (topic, key).

        Some of the messages may have another key.
        """
        questions = [
            {"topic": t, "key": k, "start_time_ms": start_time_ms, "last_time_ms": last_time_ms, "count": count}
            for t, k in keys
        ]
        found: list[list[int]] = (await self.ask("keys", _Found, keys=questions)).found
        return found

    async def by_times(self, times: Sequence[tuple[str, int, int]]) -> list[list[int]]:
        """Return the queue offsets for each (topic, queue id, time).

        They are the nearest offset (4.x), or the lower and the upper offset (5.x).
        """
        questions = [{"topic": topic, "queue_id": queue_id, "time_ms": time} for topic, queue_id, time in times]
        found: list[list[int]] = (await self.ask("times", _Found, times=questions)).found
        return found

    async def halt_after(self, delay_ms: int) -> None:
        """Have the virtual machine halt after this time, in the midst of the next operation.

        It uses Runtime.halt, which runs nothing more.
        """
        await self.ask("halt_after", dict[str, Any], delay_ms=delay_ms)

    async def wait_halted(self) -> None:
        """Wait until it has halted."""
        assert await self._process.wait() == 137
