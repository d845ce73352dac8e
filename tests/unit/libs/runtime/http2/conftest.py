# SPDX-License-Identifier: Apache-2.0
"""Each test of this package that has a server runs on both builds of its session."""

from tests.support.session_builds import each_session

__all__ = ["each_session"]
