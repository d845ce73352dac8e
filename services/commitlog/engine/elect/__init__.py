# SPDX-License-Identifier: Apache-2.0
"""Who leads a replicated log, by a record that a coordinator keeps: docs/replication.md."""
