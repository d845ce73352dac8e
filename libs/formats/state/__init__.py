# SPDX-License-Identifier: Apache-2.0
"""The small files of a store: checkpoint, epochs, JSON under `config/`, and the checksummed files under `reput/`."""
