# SPDX-License-Identifier: Apache-2.0
"""Trouble: commands that split, move and merge queues, which are killed at random moments, and kills of processes.

Some changes are made twice in a row while no gateway runs: then a queue gets keys, and is sealed before it gets a
message.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import Mapping
from typing import Any

from tests.crash.shards.history import History
from tests.crash.shards.load import TOPIC, now_ms
from tests.crash.shards.sharded_store import SERVICES, ShardedStore
from tests.crash.shards.stale import send_to_sealed
from tests.support.reput_up import REPUT

CHANGE_COUNT, KILL_COUNT = 8, 8
COMMAND_KILL_CHANCE, COMMAND_KILL_S_MAX = 0.4, 3.0
TWICE_CHANCE = 0.25
BETWEEN_S_MAX, AWAY_S_MAX = 1.0, 1.5
COMMAND_TIMEOUT_S = 90.0


class Trouble:
    """The trouble of a case. `run` returns when all processes serve again and no change is under way."""

    def __init__(self, store: ShardedStore, history: History, chance: random.Random) -> None:
        self._store, self._history, self._chance = store, history, chance
        self._processes = asyncio.Lock()
        """Held from a kill of processes until they serve again."""

    async def run(self) -> None:
        """Let all of it happen. Raises EndedEarly for a process that ended by itself."""
        await asyncio.gather(self._change(), self._kill())
        await self._store.start()
        await self._command("finish", TOPIC)
        await self._queues()

    async def _change(self) -> None:
        for _ in range(CHANGE_COUNT):
            await asyncio.sleep(self._chance.random() * BETWEEN_S_MAX)
            if self._chance.random() < TWICE_CHANCE:
                await self._change_twice()
                continue
            arguments = await self._chosen()
            if arguments:
                is_killed = self._chance.random() < COMMAND_KILL_CHANCE
                kill_s = self._chance.random() * COMMAND_KILL_S_MAX if is_killed else None
                await self._command(*arguments, kill_s=kill_s)

    async def _change_twice(self) -> None:
        """Move a queue, and then the queue that got its keys, while no gateway runs."""
        async with self._processes:
            killed_ms = now_ms()
            await self._store.front.kill("gateway")
            before = {row["queue_id"]: row for row in await self._queues()}
            is_open = [row for row in before.values() if row["state"] == "open"]
            if is_open:
                await self._move(self._chance.choice(is_open))
                for row in await self._queues():
                    if row["queue_id"] not in before:
                        await self._move(row)
            await self._store.start()
            self._history.kills.append(("gateway of front", killed_ms, now_ms()))

    async def _move(self, row: Mapping[str, Any]) -> None:
        to = self._chance.choice([name for name in self._store.shards if name != row["shard"]])
        await self._command("move", TOPIC, str(row["queue_id"]), "--to", to)

    async def _kill(self) -> None:
        """Kill a service of a shard, all services of a shard, or the gateway, and start what is not there again."""
        for _ in range(KILL_COUNT):
            await asyncio.sleep(self._chance.random() * BETWEEN_S_MAX)
            name = self._chance.choice([*self._store.shards, "front"])
            store = self._store.front if name == "front" else self._store.shards[name]
            service = "gateway" if name == "front" else self._chance.choice(SERVICES)
            is_whole = name != "front" and self._chance.random() < 0.2
            victims = SERVICES if is_whole else (service,)
            async with self._processes:
                killed_ms = now_ms()
                await store.kill(*victims)
                await asyncio.sleep(self._chance.random() * AWAY_S_MAX)
                await self._store.start()
                self._history.kills += [(f"{service} of {name}", killed_ms, now_ms()) for service in victims]

    async def _chosen(self) -> list[str]:
        """Return a command that fits the queues of the topic, nothing if they can't be read now."""
        is_open = [row for row in await self._queues() if row["state"] == "open"]
        if not is_open:
            return []
        is_open.sort(key=lambda row: row["first_hash"])
        at, names = self._chance.randrange(len(is_open)), list(self._store.shards)
        if len(is_open) > 2 and self._chance.random() < 0.4:
            pair = is_open[max(at - 1, 0) : max(at - 1, 0) + 2]
            return ["merge", TOPIC, *(str(row["queue_id"]) for row in pair), "--to", self._chance.choice(names)]
        queue = str(is_open[at]["queue_id"])
        if self._chance.random() < 0.4:
            return ["move", TOPIC, queue, "--to", self._chance.choice(names)]
        to = [part for name in self._chance.choices(names, k=2) for part in ("--to", name)]
        return ["split", TOPIC, queue, *to]

    async def _queues(self) -> list[dict[str, Any]]:
        """Return the queues of the topic, note their states and try the seals. Nothing if they can't be read now."""
        rows = await self._command("topic", TOPIC) or []
        self._history.states.append({row["queue_id"]: row["state"] for row in rows})
        await send_to_sealed(self._store, rows, self._history, self._chance)
        return rows

    async def _command(self, verb: str, *arguments: str, kill_s: float | None = None) -> list[dict[str, Any]] | None:
        """Run a command of `reput shards`, and kill it after a time. Returns its rows, None after an error."""
        line = [verb, *arguments, "--shards-file", str(self._store.file), "--json"]
        process = await asyncio.create_subprocess_exec(
            *REPUT, "shards", *line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        ending = asyncio.ensure_future(process.communicate())
        await asyncio.wait([ending], timeout=COMMAND_TIMEOUT_S if kill_s is None else kill_s)
        if not ending.done():
            process.kill()
        output, errors = await ending
        last = errors.decode().strip().rpartition("\n")[2]
        if verb != "topic":
            ended = "killed" if process.returncode == -9 else f"{process.returncode} {last[:200]}".strip()
            self._history.changes.append(f"{verb} {' '.join(arguments)}: {ended}")
        with contextlib.suppress(json.JSONDecodeError):
            return [json.loads(row) for row in output.decode().splitlines()] if process.returncode == 0 else None
        return None
