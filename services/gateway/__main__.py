# SPDX-License-Identifier: Apache-2.0
"""Run the gateway: `python -m services.gateway`."""

import sys

from libs.runtime import process
from services.gateway.bootstrap import Service, Settings

if __name__ == "__main__":
    sys.exit(process.main(sys.argv[1:], section="gateway", settings_class=Settings, build=Service))
