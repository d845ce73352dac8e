# SPDX-License-Identifier: Apache-2.0
"""Janitor's plain objects: no transport; owners of files, file system and clock arrive as arguments.

From below; each module may use the modules above it in this list:

facts           values: segments, disks and indexes, as their owners report them.
owners          LogOwner and IndexOwner, the protocols of the services that own files. `rpc` implements them.
policy          decide: which segments are deleted, which are kept, and why. Pure.
believed_time   BelievedTime: the time for the ages of segments. A jump of the clock does not change it.
index_relief    how many bytes a trim would free on the Indexer's disk, by dry runs.
topic_rules     TopicRules: topics with a rule of their own, what expires by it, and which segments it holds.
history         RunHistory: the file of past runs.
retention_loop  RetentionLoop: reads facts every few seconds, decides, and runs when a run is due.

A look: LogOwner and IndexOwner -> Facts -> decide -> Verdict -> the CommitLog hears whether its disk is full. A run:
a Decision for each segment -> the Indexer trims -> the CommitLog deletes -> RunHistory.
"""
