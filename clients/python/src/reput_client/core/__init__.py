# SPDX-License-Identifier: Apache-2.0
"""The parts that both Python clients and the Spark connector share. No I/O.

Not a public API: names outside `reput_client.__all__` and `reput_client.aio.__all__` may change with any version.
"""
