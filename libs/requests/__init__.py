# SPDX-License-Identifier: Apache-2.0
"""The handling of requests that all services share: checks, page tokens, and refusals. Knows no transport."""
