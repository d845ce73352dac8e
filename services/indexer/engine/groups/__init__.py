# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: their offsets and their settings."""
