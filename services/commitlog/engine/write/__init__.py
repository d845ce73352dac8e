# SPDX-License-Identifier: Apache-2.0
"""The write path of the log: topics, writers, the gate, the append itself, and the end of the log."""
