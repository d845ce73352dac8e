# SPDX-License-Identifier: Apache-2.0
"""Errors for refusals of the gateway and of the services behind it. The protocol has a code for each."""

from libs.requests.errors import ServiceError


class Refused(ServiceError):
    """The gateway refuses a request. `code` is the name of a code of the protocol, without its prefix."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class PeerRefused(ServiceError):
    """A service behind the gateway has refused a call, or could not be reached.

    `reason` is the name of its ErrorReason, and empty if it did not answer. `is_late` is set if the deadline was
    exceeded. `field` is the argument at fault, if there is such an argument.
    """

    def __init__(self, service: str, reason: str, text: str, *, is_late: bool = False, field: str = "") -> None:
        super().__init__(f"{service}: {text}")
        self.reason, self.is_late, self.field = reason, is_late, field
