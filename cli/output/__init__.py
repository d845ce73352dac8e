# SPDX-License-Identifier: Apache-2.0
"""Output of commands: results on standard output, as text or as JSON, and all other lines on standard error.

With --json a list is one JSON object per line and any other result is a single object, so that every line parses by
itself. The text has rounded sizes and times with units; the exact numbers are in the JSON.
"""
