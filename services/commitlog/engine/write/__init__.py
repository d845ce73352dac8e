# SPDX-License-Identifier: Apache-2.0
"""How messages get into the log: topics, writers, the gate, and the append itself."""
