# SPDX-License-Identifier: Apache-2.0
"""LateServicer: stands for a servicer that can be made only when its service has opened.

Invariants: it offers the methods of the servicer's class, and looks each up when it is called. No call comes in before
the server admits calls, but to the methods of `early`, which needs nothing of what is opened.
"""

from typing import Any, Generic, TypeVar

S = TypeVar("S")


class LateServicer(Generic[S]):
    """Give it to a server in the place of the servicer; set `made` before the server admits calls."""

    def __init__(self, kind: type[S], *, early: object = None) -> None:
        self.made: S | None = None
        self._kind = kind
        self._early = early

    def __dir__(self) -> list[str]:
        return [*dir(self._kind), *dir(self._early)]

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._early, name):
            return getattr(self._early, name)
        getattr(self._kind, name)  # AttributeError if there will be none

        def call(*arguments: Any) -> Any:
            return getattr(self.made, name)(*arguments)

        return call
