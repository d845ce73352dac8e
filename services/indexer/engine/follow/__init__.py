# SPDX-License-Identifier: Apache-2.0
"""Following the log: apply batches, sync the indexes, agree on a history, wake waiting calls."""
