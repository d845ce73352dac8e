# SPDX-License-Identifier: Apache-2.0
"""CommitLog: owns segments, checkpoint and topics. It guarantees a total order and the acknowledged durability."""
