# SPDX-License-Identifier: Apache-2.0
"""The installed server: the only import name that Reput's server has in an environment.

Its packages (`cli`, `libs`, `services`) lie in `app/` beside this file, where nobody's `import libs` finds them; the
command puts them on the path of its own process and of those that it starts. In a checkout they are at its root.
"""

import os
import sys
from pathlib import Path

_INSTALLED = Path(__file__).parent / "app"
ROOT = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[3]
"""Where the server's packages are."""


def main() -> int:
    """The `reput` command."""
    root = str(ROOT)
    sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    from cli.main import command as run

    return run()
