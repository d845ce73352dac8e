# SPDX-License-Identifier: Apache-2.0
"""CommitLog: owns segments, checkpoint and topics; promises one total order and the durability it acknowledged."""
