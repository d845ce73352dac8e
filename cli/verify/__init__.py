# SPDX-License-Identifier: Apache-2.0
"""Verify: the offline check of a whole store against its log, behind `reput verify`.

The log is walked once. Every record is checked, and the units and entries that it demands of its queue and of the index
are compared with the files, in the order of the log. So the cost is linear, and nothing is kept per record: memory is
bounded by the number of queues and by an index file's slots. Nothing is ever written and no lock is taken.
Modules: `codes` (all possible findings), `findings` (the findings of a check), `state` and `small_files` (the content
of the small files, and whether the log agrees), the rooms `log`, `queues` and `index`, and `store`, which combines
them.
"""
