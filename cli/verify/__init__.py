# SPDX-License-Identifier: Apache-2.0
"""Verify: the offline check of a whole store against its log, behind `reput verify`.

The log is walked once; every record is checked, and what it demands of its queue and of the index is compared with what
is there, in the order of the log. So the cost is linear, and nothing is kept per record: memory is bounded by the
number of queues and by one index file's slots. Nothing is ever written and no lock is taken.
Modules: `codes` (what can be found), `findings` (what was found), `state` and `small_files` (what the small files say,
and whether the log agrees), the rooms `log`, `queues` and `index`, and `store`, which puts them together.
"""
