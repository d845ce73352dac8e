# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a request to finished records: check, place and write a batch."""
