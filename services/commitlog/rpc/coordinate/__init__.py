# SPDX-License-Identifier: Apache-2.0
"""Clients of coordinators, the external stores of a replicated log's leadership record."""
