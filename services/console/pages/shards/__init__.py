# SPDX-License-Identifier: Apache-2.0
"""What concerns all shards of a store.

overview  all shards, with their state and their figures.
layout    the queues of a topic over all shards.
found     a search at several shards.
"""
