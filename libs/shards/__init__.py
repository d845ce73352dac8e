# SPDX-License-Identifier: Apache-2.0
"""Topics that lie on several logs (shards): which queue has a key. No I/O, no clock.

From below:

route           Route: the queues of a topic over all shards, from the shares that the shards have.
change          The shares of a new topic, and of a topic that was on a single log.
shards_file     The file that names the shards and the addresses of their services.

Each shard keeps its own share of a topic (libs.formats.config.topic_share), with its topics, so no other store of
records is needed. The larger version of two shares is right where both claim a key.
"""
