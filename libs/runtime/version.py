# SPDX-License-Identifier: Apache-2.0
"""The version of the server, as every service and the command line tell it."""

import importlib.metadata

try:
    VERSION = importlib.metadata.version("reput-server")
except importlib.metadata.PackageNotFoundError:  # a tree that nobody installed
    VERSION = ""
