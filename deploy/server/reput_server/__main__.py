# SPDX-License-Identifier: Apache-2.0
"""`python -m reput_server`: the `reput` command."""

import sys

from reput_server import main

sys.exit(main())
