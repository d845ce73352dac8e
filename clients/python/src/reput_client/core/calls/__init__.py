# SPDX-License-Identifier: Apache-2.0
"""Each unary call and each list as a value: what to send, where, and how to read the answer."""
