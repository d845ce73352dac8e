# SPDX-License-Identifier: Apache-2.0
"""`python -m demo`: see demo.whole. gRPC reads this variable when it is imported: see demo.spark_export."""

import os
import sys

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

from demo.whole import main

sys.exit(main())
