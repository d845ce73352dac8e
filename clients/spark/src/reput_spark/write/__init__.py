# SPDX-License-Identifier: Apache-2.0
"""Writing: options, rows as messages, batches for the log, and the sinks."""
