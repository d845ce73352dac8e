# SPDX-License-Identifier: Apache-2.0
"""CommitLog: owns the log segments, the checkpoint and the topics; promises one total order and the durability it acknowledged."""
