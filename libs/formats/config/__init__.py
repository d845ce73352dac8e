# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's JSON files under `config/`: topics, consumer offsets, delay offsets."""
