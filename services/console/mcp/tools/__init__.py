# SPDX-License-Identifier: Apache-2.0
"""The tools by subject: messages, topics and groups, the store's services and segments, and waiting messages."""
