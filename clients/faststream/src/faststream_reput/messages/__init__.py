# SPDX-License-Identifier: Apache-2.0
"""Messages of FastStream over Reput: received, parsed, and to be published."""
