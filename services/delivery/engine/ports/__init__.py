# SPDX-License-Identifier: Apache-2.0
"""The engine's view of other services: protocols and values."""
