# SPDX-License-Identifier: Apache-2.0
"""Reading: options, plan, the rows of a partition, batches, streams and frames."""
