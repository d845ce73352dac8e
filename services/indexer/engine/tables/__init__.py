# SPDX-License-Identifier: Apache-2.0
"""The indexes: queues, index files, and the progress of both."""
