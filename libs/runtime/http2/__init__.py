# SPDX-License-Identifier: Apache-2.0
"""gRPC over HTTP/2 in the event loop: bytes in, calls out; libnghttp2 does HTTP/2, and the rest is here."""

PACKAGE = "ngh2"
"""What has to be installed for it."""
