# SPDX-License-Identifier: Apache-2.0
"""CommitLog's plain objects: no transport; file system and clock arrive as arguments.

A CommitLog starts and stops; between the two an OpenLog has all parts, and whoever serves calls gets those that it
uses. The rooms, from below; each may use those above it in this list:

write    batches become records. AppendPipeline asks WriteGate, has the kernel make the records in the room of the
         active segment, and LogTailWriter publishes them: the end of the log moves there alone. LogState is what the
         records add up to (next queue offsets, batches of writers, the newest store time), Marks how far the log is,
         and Seal ends all writing at the first failure.
durable  two Syncers move `committed` after `wrote` (with a pool) and `flushed` after `committed`. An Acknowledgement is
         what a batch waits for: a durability is a mark.
keep     what a log keeps beside its segments, and which segments it keeps: snapshot of the queue offsets, checkpoint,
         epochs, deletion, disks. SmallFiles writes, one file at a time.
follow   RecordReader, and what is visible as a stream of columns: Followers shake hands, DispatchTail follows.
start    StoreFiles claims the directory, recovery finds the end of the log, LogScan learns its state on the way.

A batch: AppendPipeline.append -> LogTailWriter.segment, the kernel, LogTailWriter.put -> `wrote` -> Acknowledgements.of
-> Syncer.run -> `flushed`. A follower: Followers.handshake -> Followers.tail -> DispatchTail.steps, which wait for
`visible`. A start: OpenLog recovers the store and builds the parts in order, then the loops. A stop: the loops of small
files, then deletions and topics, then the syncers and one last sync, then snapshot, checkpoint, and `abort` goes.
"""
