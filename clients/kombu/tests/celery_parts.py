# SPDX-License-Identifier: Apache-2.0
"""A plug-in of pytest that gives each process of pytest-xdist its virtual host and its Redis."""

import os

number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
port = os.environ["REDIS_PORTS"].split(",")[number]
os.environ.update(TEST_BROKER=f"reput:///celery{number}", TEST_BACKEND=f"redis://localhost:{port}/0", REDIS_PORT=port)
