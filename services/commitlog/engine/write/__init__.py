# SPDX-License-Identifier: Apache-2.0
"""How messages get into the log: topics, writers, the gate, the append itself, and the end of the log."""
