# SPDX-License-Identifier: Apache-2.0
"""Rights files that are made from RocketMQ's access control lists."""
