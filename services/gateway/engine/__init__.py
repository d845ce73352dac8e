# SPDX-License-Identifier: Apache-2.0
"""The gateway's rules, as plain objects: what messages are, how clients wait and try again, who may call."""
