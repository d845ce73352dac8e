# SPDX-License-Identifier: Apache-2.0
"""The Janitor's gRPC servicer and its clients of the owners."""
