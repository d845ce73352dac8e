# SPDX-License-Identifier: Apache-2.0
"""The RocketMQ 5 client protocol, and the gateway's clients of the CommitLog and of Delivery."""
