# SPDX-License-Identifier: Apache-2.0
"""From the bytes of files to columns: records of the log, units of queues, entries of indexes."""
