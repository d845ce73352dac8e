# SPDX-License-Identifier: Apache-2.0
"""The parts of share groups that both clients use: values, calls and rules. No I/O."""
