# SPDX-License-Identifier: Apache-2.0
"""Drills: a real Prometheus with the rules of `deploy/prometheus` watches real services that are killed and hindered.

Each drill does harm, waits until the expected alarm fires and no other, does what the runbook says, and waits until the
alarm is over. `make alarm-drills` runs them all.
"""
