# SPDX-License-Identifier: Apache-2.0
"""Messages of the RocketMQ 5 client protocol, made from protos/reput_rocketmq."""
