# SPDX-License-Identifier: Apache-2.0
"""Indexer's plain objects, without transport. File system, clock and log source are passed as arguments.

`build` creates an Indexer with all of its parts; the Indexer opens, starts and closes them, and each servicer gets the
parts that it uses. The rooms, from the lowest; each may use the rooms above it in this list:

log      The CommitLog for the Indexer: its stream (LogSource), its records (RecordSource, or its files), and its
         interface for appending shared state (LogSink). LogFiles is a source without any service.
tables   ConsumeQueueTable has the queues, IndexTable the key index. UnsyncedFiles has the files that a sync must cover,
         OpenTails the ends through which the kernel enters records into many queues, QueueSums the sums over all
         queues, SteppedOver the records without a unit in a queue. ProgressFile has the durable progress.
follow   Indexes enters a batch into both tables and undoes it; `Indexes.reached` is the progress. ReputLoop follows the
         log and executes the verdicts of libs.log.agreement, by the stages of ReputStates. FlushLoop syncs.
         Completeness tells whether the indexes hold all records that were ever answered from them. LongPolls are woken.
answer   Answers: QueryEngine by key, time and id, Puller, ScanPlanner and Scanner. TopicExpiry: which messages expire.
groups   ConsumerOffsets, DelayOffsets, GroupConfigs and TimerWheel.
share    SharedState: commits of groups become records of the log (LocalChanges), which each Indexer applies
         (StateQueue).
upkeep   Trim, QueueRemoval and OnlineRebuild: operations for the Janitor and for operators.
measure  TopicMeasures: the messages of topics and the lags of groups, for metrics.

A batch: ReputLoop.apply -> Indexes.prepare (room in files) -> Indexes.apply -> LongPolls.wake. A handshake: agree ->
Indexes.undo, adopt, skip_to -> agree again, until the stream continues. A round of the flush:
ConsumeQueueTable.begin_sync -> sync -> ProgressFile.save -> trimmed files are removed -> the progress is reported to
the log. A start: the lock, Indexes.recover, the loops. A stop: the loops, consumer offsets, then a last sync and the
mark of a clean stop.
"""
