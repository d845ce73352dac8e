# SPDX-License-Identifier: Apache-2.0
"""How commands speak: results on standard output, for people or as JSON, and everything else on standard error.

With --json a list is one JSON object per line and a single thing is one object, so that every line parses by itself.
People get sizes and times as they say them; the exact numbers are in the JSON.
"""
