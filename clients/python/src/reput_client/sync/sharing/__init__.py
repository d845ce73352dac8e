# SPDX-License-Identifier: Apache-2.0
"""Groups whose members share messages: the consumer, and calls for operators about groups and dead letters."""
