# SPDX-License-Identifier: Apache-2.0
"""How a log becomes several with the same bytes: one leads and sends, the others check, write and acknowledge.

`Replicas` is the leader's side: a `ReplicaStream` for each that follows, whose chunks a `ChunkReader` reads.
`Following` is the other side: it asks the leader for a stream, agrees with it on where the logs part, and has an
`Applier` write what comes. What they say to each other is in `steps`.
"""
