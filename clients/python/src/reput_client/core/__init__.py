# SPDX-License-Identifier: Apache-2.0
"""What both doors and the Spark connector share; nothing here talks to a server.

Not an API: what is not in `reput_client.__all__` or `reput_client.aio.__all__` may change with any version.
"""
