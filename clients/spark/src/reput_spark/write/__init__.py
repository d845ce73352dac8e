# SPDX-License-Identifier: Apache-2.0
"""Writing: options, rows as messages, batches on their way to the log, and the sinks."""
