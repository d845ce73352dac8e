# SPDX-License-Identifier: Apache-2.0
"""The pages as values: frozen structs, made by pure functions from the client's answers. HTML and JSON show the same.

page      Page and Gap: the parts of each page: its commands, and the questions that failed.
find      the meanings of a text in the box, and the results.
mask      the hidden fields of messages, by which they can't be searched either.
message   a message: properties, body in several forms, calls that read it, its state at each group.
topics    topics, a topic, its arrivals over time.
groups    groups of both kinds, and a group.
letters   dead letters.
waiting   delayed messages and open transactions.
operate   the pages for operators: the store, retention.
shards    the page of all shards, and a topic over them.
"""
