# SPDX-License-Identifier: Apache-2.0
"""Indexer's plain objects: no transport; file system, clock and log source arrive as arguments.

`build` makes an Indexer with all of its parts in one pass; the Indexer opens, starts and closes them, and whoever
serves calls gets those that it uses. The rooms, from below; each may use those above it in this list:

log      what the Indexer needs of the CommitLog: its stream (LogSource), its records (RecordSource, or its files), and
         its front for delayed messages (LogSink). LogFiles is a source without any service.
tables   ConsumeQueueTable has the queues, IndexTable the key index. UnsyncedFiles knows what a sync must cover,
         QueueSums what all queues add up to, SteppedOver which records are in no queue. ProgressFile says what is
         certain.
follow   Indexes enters a batch into both tables and undoes it; `Indexes.reached` says how far that is. ReputLoop
         follows the log and executes what libs.log.agreement decides, by the stages of ReputStates. FlushLoop syncs.
         Completeness says whether the indexes hold all that was ever answered from them. LongPolls are woken.
answer   Answers: QueryEngine by key, time and id, Puller, ScanPlanner and Scanner.
groups   ConsumerOffsets.
share    Sharing: where the log has copies, what groups commit and how far delayed messages are delivered becomes
         records of it (LocalChanges), which each Indexer takes over (StateQueue); DelayOffsets.
upkeep   Trim, QueueRemoval and OnlineRebuild: what the Janitor and operators ask for.
deliver  DelayDelivery follows the schedule topic and appends what is due.

A batch: ReputLoop.apply -> Indexes.prepare (room in files) -> Indexes.apply -> LongPolls.wake. A handshake: agree ->
Indexes.undo, adopt, skip_to -> agree again, until the stream goes on. A round of the flush: UnsyncedFiles.begin_sync
-> sync -> ProgressFile.save -> files that were trimmed go -> the log hears how far that is. A start: the lock,
Indexes.recover, the loops. A stop: the loops, delivery, consumer offsets, then one last sync and the mark of a clean
stop.
"""
