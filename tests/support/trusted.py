# SPDX-License-Identifier: Apache-2.0
"""A channel whose calls carry this user's token: the caller is a service and an operator of this machine's stores."""

import functools
from typing import Any, TypeVar, cast

from libs.runtime.trust.tokens import find_local_token

C = TypeVar("C")


def trusted(channel: C) -> C:
    """Return the channel with the token.

    The channel is gRPC's synchronous or asynchronous channel. A call's own metadata replace the token.
    """
    return cast("C", _Trusted(channel))


class _Trusted:
    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if name not in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            return found
        return lambda *arguments, **options: functools.partial(
            found(*arguments, **options), metadata=(("authorization", f"Bearer {find_local_token(())}"),)
        )

    async def __aenter__(self) -> Any:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._channel.__aexit__(*error)

    def __enter__(self) -> Any:
        self._channel.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._channel.__exit__(*error)
