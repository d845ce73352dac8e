# SPDX-License-Identifier: Apache-2.0
"""The version of the server, which every service and the command line report."""

VERSION = "0.1.0"
"""That of pyproject.toml, which a test compares: to ask the installed package for it takes 20 ms of each start."""
