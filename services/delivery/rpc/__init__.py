# SPDX-License-Identifier: Apache-2.0
"""Delivery's gRPC servicers, and its clients of the log and the index."""
