# SPDX-License-Identifier: Apache-2.0
"""Bugs to plant in the engines of a store alone, which the part `sim` must catch."""

from tests.crash.plant import Change, Plant


def plant(name: str, path: str, old: str, new: str, *, seed: int = 0) -> Plant:
    """Return a plant for this part."""
    return Plant(name, Change(path, old, new), seed=seed)


PLANTS = (
    plant(
        "skip the sync",
        "libs/segments/segment.py",
        "                    flush(self._mapped or self._map())\n",
        "                    pass\n",
    ),
    plant(
        "take for synced what was written during the sync",
        "libs/segments/segment.py",
        "                self.flushed_position = position\n",
        "                self.flushed_position = self._committed_position if self._borrowed else self.wrote_position\n",
        seed=112,
    ),
    plant(
        "truncate one byte too far",
        "services/commitlog/engine/start/recovery.py",
        "        chain.truncate_after(end, clear_rest=is_torn)\n",
        "        chain.truncate_after(max(end - 1, chain.min_physical_offset), clear_rest=is_torn)\n",
    ),
    plant(
        "acknowledge before the write",
        "services/commitlog/engine/write/tail.py",
        "            segment.put(size_bytes)\n",
        "            import asyncio\n\n"
        "            written, buffer = segment.wrote_position, segment.buffer\n"
        "            records = bytes(segment.room[:size_bytes])\n"
        "            def write() -> None:\n"
        "                buffer[written : written + size_bytes] = records\n"
        "            asyncio.get_running_loop().call_soon(write)\n"
        "            segment.advance(written + size_bytes)\n",
        seed=95,
    ),
    Plant(
        "acknowledge before the sync",
        Change(
            "libs/log/watermark.py",
            "        if end <= self.value:\n",
            "        if has_asked or end <= self.value:\n",
        ),
        Change(
            "services/commitlog/engine/durable/acknowledge.py",
            "asked > DURABILITY_MEMORY and marks.flushed.value >= end else",
            "asked > DURABILITY_MEMORY else",
        ),
        seed=1,
    ),
    plant(
        "apply an index batch twice",
        "services/indexer/engine/tables/index.py",
        "        row = int(np.searchsorted(batch.physical_offsets, self.next_physical_offset))\n",
        "        row = 0\n",
        seed=290,
    ),
    plant(
        "ignore the epoch",
        "libs/log/common_history.py",
        "    my_parts, their_parts = _parts(mine, my_end), _parts(theirs, their_end)\n",
        "    return min(my_end, their_end)\n",
        seed=94,
    ),
    plant(
        "skip the sync of a directory when a segment is deleted",
        "services/commitlog/engine/keep/segments.py",
        "        self._fs.sync_directory(segment.path.parent)\n",
        "",
        seed=52,
    ),
    plant(
        "skip the sync of the directory when a stop is clean",
        "services/commitlog/engine/start/store_files.py",
        "        self._fs.sync_directory(self._data_dir)\n",
        "",
        seed=486,
    ),
    plant(
        "the checkpoint is ahead of the sync",
        "services/commitlog/engine/keep/checkpoint.py",
        "            flushed_physical_offset=self._marks.flushed.value,\n",
        "            flushed_physical_offset=self._marks.wrote.value,\n",
        seed=94,
    ),
    plant(
        "the snapshot is ahead of the sync",
        "services/commitlog/engine/keep/queue_snapshot.py",
        "            await self._marks.flushed.soon(end)\n",
        "            pass\n",
    ),
    plant(
        "progress is ahead of the effect",
        "services/indexer/engine/follow/flush.py",
        "                if await self._queues.together.sync(queues, new):\n                    queues, new = [], []\n"
        "                if queues or files_due:\n                    await sync_all(queues, files_due)\n",
        "                pass\n",
        seed=3,
    ),
    plant(
        "a failed sync is tried again",
        "services/commitlog/engine/durable/syncer.py",
        "            self._seal.set(error)\n            return\n",
        "            end = self._source.value\n",
    ),
    plant(
        "counters are not restored from the snapshot",
        "services/commitlog/engine/write/state.py",
        "            self.table.set_next_queue_offset(topic, counter.queue_id, counter.next_queue_offset)\n",
        "            pass\n",
    ),
    plant(
        "readers see what is not synced",
        "services/commitlog/engine/write/marks.py",
        "        visible = flushed if is_synced_at_once else committed\n",
        "        visible = committed\n",
    ),
    plant(
        "doubtful index files are kept",
        "services/indexer/engine/tables/index.py",
        "        kept = [name for name in names if is_clean or name <= finished_file]\n",
        "        kept = list(names)\n",
    ),
    plant(
        "queues keep what lies behind their bound",
        "services/indexer/engine/tables/unit_scan.py",
        "        return (offsets < 0) | (offsets >= bound_physical_offset) | ",
        "        return (offsets < 0) | ",
    ),
    plant(
        "a change of a topic waits for topics.json",
        "libs/log/state/topic_store.py",
        "            await asyncio.to_thread(topics_file.append_change, self._fs, self._data_dir, change)\n",
        "            pass\n",
    ),
    plant(
        "the journal of topics goes although topics.json lacks its changes",
        "libs/log/state/topic_store.py",
        "            await asyncio.to_thread(topics_file.save, self._fs, self._data_dir, file)\n"
        "            self._is_file_known = True\n"
        "            async with",
        "            self._is_file_known = True\n            async with",
    ),
    plant(
        "names of new queues are not synced",
        "services/indexer/engine/follow/flush.py",
        "                    await asyncio.to_thread(self._queues.together.sync_names, new)\n",
        "                    pass\n",
    ),
    plant(
        "a writer's batch that was torn stays",
        "services/commitlog/engine/start/scan.py",
        "batch is None or batch.end_physical_offset <= end.physical_offset:",
        "True:",
    ),
    plant(
        "counters keep what a batch that was cut had counted",
        "services/commitlog/engine/start/scan.py",
        "                if offsets[index] < state.table.next_queue_offset(topic, queue_id):\n",
        "                if False:\n",
    ),
    plant(
        "a batch of a writer is not remembered",
        "services/commitlog/engine/write/append.py",
        "            self._state.writers.note(self._writer_batch)\n",
        "            pass\n",
    ),
    plant(
        "a start does not look for writers in the log",
        "services/commitlog/engine/write/state.py",
        "                self.writers.note(WriterBatch.of(stamp, int(times[index])))\n",
        "                pass\n",
    ),
    plant(
        "the snapshot leaves out the writers",
        "services/commitlog/engine/keep/queue_snapshot.py",
        "            self._state.writers.batches(),\n            self._state.writers.next_sequences(),\n",
        "            [],\n            [],\n",
    ),
)
