# SPDX-License-Identifier: Apache-2.0
"""The small files of a store: checkpoint, epochs, and the checksummed files under `reput/`."""
