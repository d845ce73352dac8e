# SPDX-License-Identifier: Apache-2.0
"""Tasks of Celery that do nothing, on Reput and on Redis."""
