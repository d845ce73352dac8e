# SPDX-License-Identifier: Apache-2.0
"""The official clients of RocketMQ 5 against the gateway."""
