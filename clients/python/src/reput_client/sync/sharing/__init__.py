# SPDX-License-Identifier: Apache-2.0
"""Groups whose members share messages: the consumer, and what operators do with groups and dead letters."""
