# SPDX-License-Identifier: Apache-2.0
"""The clients of all languages, by a common table of cases. README.md has the protocol of their drivers."""
