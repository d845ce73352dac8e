# SPDX-License-Identifier: Apache-2.0
"""The refusals of the gateway itself. PeerError is a refusal of a service behind it."""

from libs.requests.errors import ServiceError


class Refused(ServiceError):
    """The gateway refuses a request. `code` is the name of a code of the protocol, without its prefix."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
