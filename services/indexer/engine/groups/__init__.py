# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: where each of them is."""
