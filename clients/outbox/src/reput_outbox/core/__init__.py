# SPDX-License-Identifier: Apache-2.0
"""The outbox without a framework: rows, the operations on its tables, the relay's steps, and the sender."""
