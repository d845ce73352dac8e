# SPDX-License-Identifier: Apache-2.0
"""The gateway: lets RocketMQ 5's own clients work with this store."""
