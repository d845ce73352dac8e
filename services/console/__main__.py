# SPDX-License-Identifier: Apache-2.0
"""Run the console: `python -m services.console`."""

import gc
import sys

from libs.runtime.watch.faults import ending_in_order

if __name__ == "__main__":
    gc.disable()  # modules leave no garbage behind; `process.main` enables the collector
    with ending_in_order():
        from libs.runtime import process
        from services.console.bootstrap import Service, Settings

        sys.exit(process.main(sys.argv[1:], section="console", settings_class=Settings, build=Service))
