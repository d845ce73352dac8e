# SPDX-License-Identifier: Apache-2.0
"""Commands about shards: several stores as a whole, behind a gateway that knows all of them.

commands    the group of all commands, for the registry.
group       the group that the modules put their commands into.
topics      list, create, topic.
changes     split, move, merge, spread, finish.
drain       drain.
left        the messages and bytes that a shard still has.
plans       Plans of changes, from the shares of a topic. Pure.
changer     Changer: makes a change, step by step, beside other programs.
shares      the shares of a topic at all shards, read and written.
opened      the shards of the file, each with a client.
rows        tables of queues.
"""
