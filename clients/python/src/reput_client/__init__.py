# SPDX-License-Identifier: Apache-2.0
"""Python client of Reput: Producer, Consumer and Query, synchronous and asyncio."""
