# SPDX-License-Identifier: Apache-2.0
"""A test that has a server may run on both builds of its session."""

from tests.support.session_builds import each_session

__all__ = ["each_session"]
