# SPDX-License-Identifier: Apache-2.0
"""What all services do with requests: checks, page tokens, and refusals. Knows no transport."""
