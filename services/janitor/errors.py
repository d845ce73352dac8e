# SPDX-License-Identifier: Apache-2.0
"""Errors of the Janitor. rpc/error_table.py maps them to gRPC statuses."""

from libs.requests.errors import ServiceError


class RunInProgress(ServiceError):
    """A run is under way, and there is at most a single run at a time."""

    def __init__(self, *, started_ms: int) -> None:
        super().__init__(f"a retention run is under way since {started_ms} ms after the epoch")
        self.started = str(started_ms)


class OwnerRefused(ServiceError):
    """An owner answered, but refused the request. `refusal` is a word, such as IN_USE."""

    def __init__(self, *, service: str, refusal: str, text: str) -> None:
        super().__init__(f"{service} refused: {refusal}: {text}")
        self.service, self.refusal = service, refusal
