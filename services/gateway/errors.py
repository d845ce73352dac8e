# SPDX-License-Identifier: Apache-2.0
"""The refusals of the gateway itself. PeerError is a refusal of a service behind it."""

from libs.requests.errors import ServiceError


class Refused(ServiceError):
    """The gateway refuses a request. `code` is the name of a code of the protocol, without its prefix.

    `reason` is a reason of docs/errors.md, where the refusal has the meaning of one. `over` is the subject that is over
    its quota.
    """

    def __init__(self, code: str, text: str, *, reason: str = "", over: str = "") -> None:
        super().__init__(text)
        self.code, self.reason, self.over = code, reason, over
