# SPDX-License-Identifier: Apache-2.0
"""The choice between the builds of the session: the compiled session if it is built and finds the library.

REPUT_NO_EXTENSIONS=1 chooses the session in Python. REPUT_REQUIRE_EXTENSIONS=1 makes a missing compiled session an
ImportError, as for the kernel (docs/decisions/0002).
"""

import os
from typing import TYPE_CHECKING

from libs.runtime.http2.session.plain import PlainSession

if TYPE_CHECKING:
    from libs.runtime.http2.session.session_cy import Session

Build = type[PlainSession] | type["Session"]


def compiled() -> "type[Session]":
    """Return the compiled session. Raises ImportError if it is not built, or does not find the library."""
    from libs.runtime.http2.session.session_cy import Session

    return Session


def best() -> tuple[Build, str]:
    """Return the build to use, with the reason if the compiled session is missing. The reason is empty otherwise.

    Raises ImportError if the compiled session is required and missing.
    """
    if os.environ.get("REPUT_NO_EXTENSIONS") == "1":
        return PlainSession, ""
    try:
        return compiled(), ""
    except ImportError as error:
        if os.environ.get("REPUT_REQUIRE_EXTENSIONS") == "1":
            raise
        return PlainSession, str(error)
