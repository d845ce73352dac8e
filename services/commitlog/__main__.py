# SPDX-License-Identifier: Apache-2.0
"""`python -m services.commitlog`: the CommitLog as a process."""

import gc
import sys

from libs.runtime.watch.faults import ending_in_order

if __name__ == "__main__":
    gc.disable()  # modules leave no garbage behind; `process.main` enables the collector
    with ending_in_order():
        from libs.runtime import process
        from services.commitlog.bootstrap import Service, Settings

        sys.exit(process.main(sys.argv[1:], section="commitlog", settings_class=Settings, build=Service))
