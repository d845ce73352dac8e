# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH100, PTH112, PTH118, PTH120 - pathlib would be imported before commands put off what it brings along
"""The installed server: the only import name that Reput's server has in an environment.

Its packages (`cli`, `libs`, `services`) lie in `app/` beside this file, where nobody's `import libs` finds them; the
command puts them on the path of its own process and of those that it starts: behind the standard library, which has
most of what is imported, or first if somebody else's packages are in front. In a checkout they are at its root.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = os.path.join(_HERE, "app")
ROOT = _INSTALLED if os.path.isdir(_INSTALLED) else os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
"""Where the server's packages are."""


def main() -> int:
    """The `reput` command. The folder in which it was started, or its program lies, is nobody's place for modules."""
    if not sys.flags.safe_path:
        del sys.path[0]
    sys.path.insert(_place(), ROOT)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    from cli.main import command as run

    return run()


def _place() -> int:
    """Return where our packages go: behind the standard library, if nobody else's are in front of it."""
    library = os.path.dirname(os.__file__)
    behind = sys.path.index(library) + 1 if library in sys.path else 0
    return behind if all(entry.endswith(".zip") for entry in sys.path[: behind - 1]) else 0
