# SPDX-License-Identifier: Apache-2.0
"""Errors of the fixtures, whose text is enough for the reader of a test report."""


class FixtureError(Exception):
    """The store of a fixture can't be had."""


class ServerMissing(FixtureError):
    """The package reput-server is missing, or older than this package."""

    def __init__(self, error: ImportError) -> None:
        super().__init__(
            f"the fixtures of pytest-reput run a store and need reput-server where pytest runs ({error}): "
            "pip install reput-server"
        )


class NotStarted(FixtureError):
    """The processes of a store did not become ready."""
