# SPDX-License-Identifier: Apache-2.0
"""The process that forks services: a service that cannot be loaded does not stop the others."""

import sys

import pytest

from cli.launcher import Launched, Launcher


@pytest.mark.skipif(sys.platform != "linux", reason="forks of services are for Linux")
async def test_a_service_that_cannot_be_loaded_fails_alone() -> None:
    """Its own process ends with the error of the import, and another service starts."""
    launcher = Launcher(["absent", "janitor"])
    try:
        absent, janitor = [await launcher.start(name, ["--help"], "") for name in ("absent", "janitor")]
        assert await janitor.wait() == 0
        assert await absent.wait() == 1
        assert b"services.absent" in await _errors_of(absent)
    finally:
        launcher.close()


async def _errors_of(launched: Launched) -> bytes:
    return await launched.stderr.read()
