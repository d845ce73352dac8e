# SPDX-License-Identifier: Apache-2.0
"""The version of the server, which every service and the command line report."""

import importlib.metadata

try:
    VERSION = importlib.metadata.version("reput-server")
except importlib.metadata.PackageNotFoundError:  # a source tree without an installation
    VERSION = ""
