# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in the Janitor. rpc/error_table.py says how each travels."""

from libs.requests.errors import ServiceError


class RunInProgress(ServiceError):
    """A run is under way, and there is only one at a time."""

    def __init__(self, *, started_ms: int) -> None:
        super().__init__(f"a retention run is under way since {started_ms} ms after the epoch")
        self.started = str(started_ms)


class OwnerRefused(ServiceError):
    """An owner answered, but did not do what was asked. `refusal` is one word, such as IN_USE."""

    def __init__(self, *, service: str, refusal: str, text: str) -> None:
        super().__init__(f"{service} refused: {refusal}: {text}")
        self.service, self.refusal = service, refusal
