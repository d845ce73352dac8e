# SPDX-License-Identifier: Apache-2.0
"""The pages for operators.

store      services and their troubles, marks of the log, disks, replicas.
retention  segments with their reasons, a time line, trials.
forecast   how the disk fills.
callers    audit lines, and connections.
"""
