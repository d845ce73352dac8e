# SPDX-License-Identifier: Apache-2.0
"""A Reput store inside tests: the fixtures `reput` and `reput_processes` of pytest.

`Reput` is the type of both fixtures, `MemoryReput` that of `reput`, for annotations of tests.
"""

from pytest_reput.memory import MemoryReput
from pytest_reput.store import Reput

__all__ = ["MemoryReput", "Reput"]
