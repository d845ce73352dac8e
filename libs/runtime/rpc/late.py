# SPDX-License-Identifier: Apache-2.0
"""LateServicer: replaces a servicer that can be created only when its service has opened.

Invariants: it offers the methods of the servicer's class, and looks each method up when it is called. Before the server
admits calls, only the methods of `early` are called. They need no part of the service that is opened later.
"""

from typing import Any, Generic, TypeVar

S = TypeVar("S")


class LateServicer(Generic[S]):
    """The replacement for a servicer. Its owner sets `made` before the server admits calls."""

    def __init__(self, kind: type[S], *, early: object = None) -> None:
        self.made: S | None = None
        self._kind = kind
        self._early = early

    def __dir__(self) -> list[str]:
        return [*dir(self._kind), *dir(self._early)]

    def __getattr__(self, name: str) -> Any:
        if hasattr(self._early, name):
            return getattr(self._early, name)
        getattr(self._kind, name)  # AttributeError if the class has no such method

        def call(*arguments: Any) -> Any:
            return getattr(self.made, name)(*arguments)

        return call
