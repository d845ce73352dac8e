# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in the Janitor. rpc/error_table.py says how each travels."""


class JanitorError(Exception):
    """Base of all errors of this service."""


class BadArgument(JanitorError):
    """A field of a request is out of its range."""

    def __init__(self, *, field: str, value: object, limit: str) -> None:
        super().__init__(f"{field} is {value}, but must be {limit}")
        self.field, self.value, self.limit = field, str(value), limit


class BadPageToken(JanitorError):
    """The page token was not in any answer of this service."""

    def __init__(self) -> None:
        super().__init__("page_token is not one that this list returned")
        self.field = "page_token"


class RunInProgress(JanitorError):
    """A run is under way, and there is only one at a time."""

    def __init__(self, *, started_ms: int) -> None:
        super().__init__(f"a retention run is under way since {started_ms} ms after the epoch")
        self.started = str(started_ms)


class OwnerUnavailable(JanitorError):
    """An owner of files can't be reached or is not ready. Another try later may succeed."""

    def __init__(self, *, service: str, text: str) -> None:
        super().__init__(f"{service} is not available: {text}")
        self.service = service


class OwnerRefused(JanitorError):
    """An owner answered, but did not do what was asked. `refusal` is one word, such as IN_USE."""

    def __init__(self, *, service: str, refusal: str, text: str) -> None:
        super().__init__(f"{service} refused: {refusal}: {text}")
        self.service, self.refusal = service, refusal
