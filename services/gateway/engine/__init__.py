# SPDX-License-Identifier: Apache-2.0
"""The gateway's rules, as plain objects: no transport; clocks and the store's services arrive as arguments.

messages      Message: the properties of a client's message, as RocketMQ's proxy stores them, and back; limits.
bodies        Bodies: inflates compressed bodies, because clients read only some containers.
names         names of topics and groups with a client's namespace.
known_topics  KnownTopics: topics that existed a moment ago.
waiting       how long a receive waits for its first message.
retries       the retry policy that a client's library understands.
shared_calls  SharedCalls: sent messages, acknowledgements and new invisible times of many callers in few calls.
renewals      Renewals: extends the deliveries of push consumers while their clients live.
producers     Producers: which clients can be asked how a transaction ends.
recall        RecallHandle: the handle that cancels a delayed message.
signature     Signature: the HMAC by which a client proves that it knows a secret.
shards        the choice of a queue, and names of shards in handles, with several shards behind the gateway.

A send: Message, Bodies, KnownTopics -> the CommitLog. A receive: waiting -> Delivery -> from_properties, Bodies ->
Renewals, for push consumers. An acknowledgement: SharedCalls -> Delivery; Renewals ends.
"""
