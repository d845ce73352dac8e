# SPDX-License-Identifier: Apache-2.0
"""Commands about the callers of the services: their connections, and the audit of their calls."""
