# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's files under `config/`: topics, consumer offsets, delay offsets, subscription groups, timer checkpoint."""
