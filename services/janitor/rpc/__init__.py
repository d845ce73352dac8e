# SPDX-License-Identifier: Apache-2.0
"""Janitor's gRPC servicer and its clients of the owners."""
