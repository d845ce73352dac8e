# SPDX-License-Identifier: Apache-2.0
"""`python -m reput_outbox` is the command `reput-outbox`."""

import sys

from reput_outbox.command import main

sys.exit(main())
