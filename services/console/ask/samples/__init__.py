# SPDX-License-Identifier: Apache-2.0
"""Samples: every 10 s the progress of topics and groups, for the history in memory and for the reasons of standstills.

An idle console does little else, so a sample costs as much as has moved: groups at rest are neither asked (`asked`) nor
computed again (`moved`).
"""
