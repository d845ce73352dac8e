# SPDX-License-Identifier: Apache-2.0
"""Run the Janitor: `python -m services.janitor --data-dir DIR`."""

import gc
import sys

from libs.runtime.watch.faults import ending_in_order

if __name__ == "__main__":
    gc.disable()  # modules leave no garbage behind; `process.main` enables the collector
    with ending_in_order():
        from libs.runtime import process
        from services.janitor.bootstrap import Service, Settings

        sys.exit(process.main(sys.argv[1:], section="janitor", settings_class=Settings, build=Service))
