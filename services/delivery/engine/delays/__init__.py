# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: reads them into a schedule, delivers them at their time, lists, cancels and renews them."""
