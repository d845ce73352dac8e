# SPDX-License-Identifier: Apache-2.0
"""The objects of the CommitLog without transport. File system and clock are arguments.

A CommitLog starts and stops. Between the two an OpenLog has all parts, and each call takes the parts that it uses.
The rooms, from below; each may use the rooms above it in this list:

write      batches become records. AppendPipeline checks WriteGate and has the kernel encode the records in the room of
           the active segment. LogTailWriter appends them: only it moves the end of the log. LogState is the state at
           the end of the log (next queue offsets, batches of writers, the newest store time). Marks are the log's
           progress. Seal ends all writing at the first failure. ScannedRecords keeps the columns of a follower's
           scan for its tails.
durable    two Syncers advance `committed` after `wrote` (with a pool) and `flushed` after `committed`. A batch waits
           for its Acknowledgement: a durability is a mark.
keep       the files of a log other than its segments, and the upkeep of segments: snapshot of the queue offsets,
           checkpoint, epochs, deletion, disks. SmallFiles writes a single file at a time.
start      StoreFiles claims the directory, recovery finds the end of the log, LogScan restores its state on the way.
follow     RecordReader reads records. Followers agrees with a follower on the common history, and DispatchTail yields
           the visible records as columns.
replicate  Replicas streams the log to its followers, and Follower copies the leader's log. Beside follow.
elect      elects the leader of a replicated log by a record at a coordinator.

A batch: AppendPipeline.append -> LogTailWriter.segment, the kernel, LogTailWriter.put -> `wrote` -> Acknowledgements.of
-> Syncer.run -> `flushed`. A follower: Followers.handshake -> Followers.tail -> DispatchTail.steps, which wait for
`visible`. A start: recover_store, then OpenLog builds the parts in order, then the loops. A stop: the loops of small
files, then topics and deletions, then the syncers and a last sync, then snapshot and checkpoint; `abort` is removed
last.
"""
