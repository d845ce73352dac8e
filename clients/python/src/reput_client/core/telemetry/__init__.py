# SPDX-License-Identifier: Apache-2.0
"""Telemetry of the client: its log, metrics of producers and consumers, spans."""
