# SPDX-License-Identifier: Apache-2.0
"""A record of the log: its fields, its properties, ids, delay levels, and the columns that describe many records."""
