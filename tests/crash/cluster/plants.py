# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant in a replicated log, which the simulated cluster must catch.

The first are the mistakes that the model of the protocol knows, by their names there; the others are of the code alone.
"""

from tests.crash.plant import Change, Plant

DELIVERY = "services/delivery/engine"
ELECT = "services/commitlog/engine/elect"
KEEP = "services/commitlog/engine/keep"
REPLICATE = "services/commitlog/engine/replicate"
START = "services/commitlog/engine/start"
WRITE = "services/commitlog/engine/write"


def plant(name: str, seed: int, *changes: tuple[str, str, str]) -> Plant:
    """Return a plant for this part."""
    return Plant(name, *(Change(*change) for change in changes), part="cluster", seed=seed)


OF_THE_MODEL = (
    plant(
        "acknowledge before the sync",
        1,
        (
            f"{REPLICATE}/follower.py",
            "            flushed = self._marks.flushed.value\n            received",
            "            flushed = self._marks.wrote.value\n            received",
        ),
    ),
    plant(
        "confirm what the leader has not synced",
        1,
        (
            f"{REPLICATE}/in_sync_keeper.py",
            "        self._marks.replicated.advance(self.set.replicated(self._marks.flushed.value))\n",
            "        self._marks.replicated.advance(self.set.replicated(self._marks.wrote.value))\n",
        ),
    ),
    plant(
        "elect outside of the in-sync set",
        2,
        (f"{ELECT}/election.py", "    if facts.member not in record.in_sync:\n", "    if False:\n"),
    ),
    plant(
        "wait for connected members alone",
        2,
        (
            f"{REPLICATE}/in_sync_set.py",
            "        flushed = (self._members[member].flushed_physical_offset for member in self.counted)\n",
            (
                "        live = [self._members[member] for member in self.counted if self._members[member].is_live]\n"
                "        flushed = [own_flushed_physical_offset, *(state.flushed_physical_offset for state in live)]\n"
            ),
        ),
    ),
    plant(
        "write the in-sync set without comparing",
        49,
        (
            "tests/support/memory_coordinator.py",
            "        self._check()\n        return self._answer(self._coordinator.put(seen, record",
            "        return self._answer(self._coordinator.put(self._coordinator.there, record",
        ),
    ),
    plant(
        "shrink before the coordinator agreed",
        6,
        (
            f"{REPLICATE}/in_sync_set.py",
            "if self._proposed is None else self.others | self._proposed\n",
            "if self._proposed is None else self._proposed\n",
        ),
    ),
    plant(
        "expand after the coordinator agreed",
        14,
        (
            f"{REPLICATE}/in_sync_set.py",
            "        return self.others | self.awaited if self._proposed is None else self.others | self._proposed\n",
            "        return self.others | self.awaited if self._proposed is None else self.others\n",
        ),
    ),
    plant(
        "let a replica in at a stale confirmed offset",
        84,
        (
            f"{REPLICATE}/in_sync_set.py",
            "        floor = max(replicated, self._epoch_start)\n",
            "        floor = replicated\n",
        ),
        (
            f"{REPLICATE}/in_sync_set.py",
            "        caught_up_at_ms = now_ms - self._limits.time_ms - 1 if known is None else known.caught_up_at_ms\n",
            "        caught_up_at_ms = now_ms if known is None else known.caught_up_at_ms\n",
        ),
    ),
    plant(
        "truncate to the confirmed offset",
        47,
        (
            f"{REPLICATE}/follower.py",
            "            self.leader.cut(Cut(common_end, handshake.epochs))\n",
            "            self.leader.cut(Cut(min(common_end, replicated), handshake.epochs))\n",
        ),
    ),
    plant(
        "compare the last epoch alone",
        103,
        (
            "libs/log/common_history.py",
            "    my_parts, their_parts = _parts(mine, my_end), _parts(theirs, their_end)\n",
            (
                "    last = theirs[-1].number if theirs else 0\n"
                "    ends = [end for number, (_, end) in _parts(mine, my_end).items() if number <= last]\n"
                "    return min(their_end, ends[-1]) if ends else 0\n"
            ),
        ),
    ),
    plant(
        "serve readers before the takeover is confirmed",
        2,
        (
            f"{WRITE}/marks.py",
            "            replicated.advance(confirmed)\n",
            "            replicated.advance(flushed.value)\n",
        ),
    ),
    plant(
        "go on in the same epoch after a restart",
        2,
        (
            f"{ELECT}/election.py",
            "        record, epoch=record.epoch + 1,",
            "        record, epoch=record.epoch + (former != me),",
        ),
        (
            f"{KEEP}/epochs.py",
            "        assert number > self.number\n        self._save([*kept, Epoch(number, start_physical_offset)])\n",
            "        self._save([*kept, Epoch(number, start_physical_offset)] if number > self.number else kept)\n",
        ),
    ),
    plant(
        "count epochs locally after a restart",
        1,
        (
            f"{KEEP}/epochs.py",
            "        number = elected.epoch if elected else max(self.number, promised_epoch) + step\n",
            "        number = self.number + 1\n",
        ),
    ),
    plant(
        "take a replaced disk for a member",
        21,
        (
            f"{ELECT}/election.py",
            "    if facts.member not in record.in_sync:\n",
            "    if facts.member.replica_id not in {member.replica_id for member in record.in_sync}:\n",
        ),
    ),
    plant(
        "forget an epoch that was won",
        1,
        (f"{ELECT}/member.py", "            await log.identity.promise(term.epoch)\n", ""),
        (
            "services/commitlog/engine/commit_log.py",
            "            await log.identity.promise(log.epochs.number)\n",
            "",
        ),
    ),
    plant(
        "forget an epoch that was followed",
        1,
        (f"{REPLICATE}/follower.py", "        await self._identity.promise(epoch)\n", ""),
    ),
    plant(
        "follow a leader of an older epoch",
        733,
        (f"{ELECT}/election.py", "    if record.epoch < facts.promised_epoch:\n", "    if False:\n"),
        ("tests/crash/cluster/coordinator.py", "OLD_RATIO, OLD_COUNT = 0.1, 4\n", "OLD_RATIO, OLD_COUNT = 0.9, 4\n"),
        (f"{ELECT}/member.py", '            gate.hand_over("")\n        elif', "        elif"),
        (f"{REPLICATE}/follower.py", "        if epoch < promised:\n", "        if False:\n"),
        (f"{REPLICATE}/leader.py", "        if hello.promised_epoch > self._epochs.number:\n", "        if False:\n"),
    ),
)

OF_THE_CODE = (
    plant(
        "a cut does not lower the checkpoint",
        6,
        (f"{START}/cut.py", "        small_files.save_checkpoint(fs, config.data_dir, lowered.of_reput())\n", ""),
    ),
    plant(
        "a cut leaves a snapshot of what is cut off",
        6,
        (
            f"{START}/cut.py",
            "        if snapshot is None or snapshot.end_physical_offset > end:\n",
            "        if False:\n",
        ),
    ),
    plant(
        "a batch of a writer is taken in by parts",
        1,
        (
            f"{REPLICATE}/applier.py",
            "        if status != layout.S_BLANK and (batch := self._last_batch()) is not None:\n",
            "        if False and (batch := self._last_batch()) is not None:\n",
        ),
    ),
    plant(
        "answers do not ask for the lease",
        6,
        (
            "services/commitlog/engine/durable/acknowledge.py",
            "        if self._check is not None:\n            self._check()\n        return DURABILITY_LOCAL_DISK",
            "        return DURABILITY_LOCAL_DISK",
        ),
    ),
    plant(
        "a tail of its own counts for who comes",
        6,
        (
            f"{REPLICATE}/stream.py",
            "            flushed_physical_offset=min(common_end_physical_offset, hello.flushed_physical_offset),\n",
            "            flushed_physical_offset=hello.flushed_physical_offset,\n",
        ),
    ),
    plant(
        "a leader that is gone leaves a set that is too small",
        2,
        (
            f"{ELECT}/election.py",
            "    if former in others and len(others) >= record.min_in_sync:\n",
            "    if former in others:\n",
        ),
    ),
    plant(
        "the set gets smaller than it had to be",
        8,
        (
            f"{REPLICATE}/in_sync_set.py",
            "        missing_count = max(self.min_in_sync - 1 - len(wanted), 0)\n",
            "        missing_count = 0\n",
        ),
    ),
    plant(
        "services do not look at the durability of an answer",
        43,
        ("libs/requests/durable.py", "    while last.is_late:\n", "    while False:\n"),
    ),
    plant(
        "changes of topics are answered before the in-sync set has them",
        124,
        (
            f"{REPLICATE}/in_sync_keeper.py",
            "                while not self.set.has_topics(change_count):\n",
            "                while False:\n",
        ),
    ),
    plant(
        "a handover waits for nobody",
        143,
        (
            f"{REPLICATE}/handover.py",
            "        return stream.has_topics and stream.replica.flushed_physical_offset >= self._marks.wrote.value\n",
            "        return stream.has_topics\n",
        ),
    ),
    plant(
        "a new disk gets the name of the old one",
        3,
        (
            f"{KEEP}/identity.py",
            "                    store_id=secrets.token_hex(STORE_ID_SIZE_BYTES),\n",
            "                    store_id=secrets.token_hex(STORE_ID_SIZE_BYTES)[:0].zfill(2 * STORE_ID_SIZE_BYTES),\n",
        ),
    ),
    plant(
        "the epochs are the leader's before the log is cut",
        154,
        (
            f"{START}/cut.py",
            "        chain.truncate_after(end, clear_rest=True)\n",
            (
                "        epochs.adopt(epochs.history_id, list(self.epochs))\n"
                '        failpoint("cut.after_epochs")\n'
                "        chain.truncate_after(end, clear_rest=True)\n"
            ),
        ),
    ),
    plant(
        "the lease counts from the answer",
        373,
        (
            f"{ELECT}/lease.py",
            "            self.sent_at_s = sent_at_s\n",
            "            self.sent_at_s = self.now_s\n",
        ),
    ),
    plant(
        "one promise is enough",
        6,
        (
            f"{ELECT}/leader_term.py",
            "        if not others <= self._promised_at_s.keys():\n            return 0\n",
            "        others &= self._promised_at_s.keys()\n",
        ),
        (f"{ELECT}/leader_term.py", "        since_s = min((", "        since_s = max(("),
    ),
    plant(
        "stand in spite of a promise",
        60,
        (f"{ELECT}/election.py", "    if facts.is_bound and record", "    if False and record"),
    ),
    plant(
        "a start forgets what was promised",
        48,
        (f"{ELECT}/member.py", "        self.stand_back(self._config.lease_duration_ms)\n", ""),
    ),
    plant(
        "a change without an answer counts as not made",
        388,
        (
            f"{REPLICATE}/in_sync_set.py",
            "        if self._proposed is not None:\n            return self._proposed\n",
            "",
        ),
    ),
    plant(
        "a follower shows what it has not synced",
        6,
        (
            f"{REPLICATE}/follower.py",
            "        shown = min(self._told_physical_offset, self._marks.flushed.value)\n",
            "        shown = min(self._told_physical_offset, self._marks.wrote.value)\n",
        ),
    ),
    plant(
        "an answer of an election that is older than what was watched counts",
        50012654,
        (
            f"{ELECT}/member.py",
            "                self._know(await self._coordinator.read())\n                raise\n",
            "                raise\n",
        ),
    ),
)

OF_THE_SERVICES = (
    plant(
        "settled messages are answered before the in-sync set has them",
        142,
        (
            f"{DELIVERY}/receive/settling.py",
            "            self._last_write = self._journal.write(events, is_safe=True)\n",
            "            self._last_write = self._journal.write(events, is_safe=False)\n",
        ),
    ),
    plant(
        "cancels are answered before the in-sync set has them",
        18,
        (
            f"{DELIVERY}/delays/delays.py",
            "letters, is_safe=True, may_be_refused=True)",
            "letters, is_safe=False, may_be_refused=True)",
        ),
    ),
    plant(
        "ends of transactions are answered before the in-sync set has them",
        124,
        (
            f"{DELIVERY}/transactions/transactions.py",
            "*messages.ended(offsets, ids, how)], is_safe=True)",
            "*messages.ended(offsets, ids, how)], is_safe=False)",
        ),
    ),
    plant(
        "the position of a delay level is written before its messages",
        18,
        (
            f"{DELIVERY}/delays/level.py",
            "        await self._journal.write([event], copies, is_safe=True, may_be_refused=True)\n",
            (
                "        await self._journal.write([event], is_safe=True)\n"
                "        await self._journal.write([], copies, is_safe=True, may_be_refused=True)\n"
            ),
        ),
    ),
    plant(
        "a take-over does not restore the positions of delay levels",
        9,
        (
            f"{DELIVERY}/journal/replay.py",
            "        for event in record.events:\n            self.groups.apply(event)\n",
            (
                "        for event in record.events:\n            self.groups.levels.clear()\n"
                "            self.groups.apply(event)\n"
            ),
        ),
    ),
    plant(
        "a copy of the journal takes delay levels back",
        108,
        (
            f"{DELIVERY}/state/groups.py",
            "            least = self.levels.get(event.place.queue_id, 0) if isinstance(event, Took) else 0\n",
            "            least = 0\n",
        ),
    ),
    plant(
        "messages of a delay level that are nearly due share a batch",
        27,
        (
            f"{DELIVERY}/delays/level.py",
            "lambda one: self._due_ms(one) <= now_ms, ",
            "lambda one: self._due_ms(one) <= now_ms + 1_000 * PAUSE_S_MIN, ",
        ),
    ),
)

PLANTS = (*OF_THE_MODEL, *OF_THE_CODE, *OF_THE_SERVICES)
