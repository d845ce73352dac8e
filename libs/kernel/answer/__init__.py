# SPDX-License-Identifier: Apache-2.0
"""From records to the bytes of an answer: protobuf messages and Arrow columns."""
