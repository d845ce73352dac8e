# SPDX-License-Identifier: Apache-2.0
"""Elections of a replicated log's leader, by a record at a coordinator: docs/replication.md."""
