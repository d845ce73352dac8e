# SPDX-License-Identifier: Apache-2.0
"""A client of Kubernetes' API server, and the errors of its calls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import httpx2
import msgspec
from lightkube import AsyncClient, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.core.exceptions import ConfigError as KubeConfigError

from libs.runtime.errors import ConfigError
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable
from services.commitlog.rpc.coordinate.record import Refused
from services.commitlog.rpc.coordinate.settings import KubernetesConfig

CONFLICT, GONE, TOO_MANY = 409, 410, 429

_FAILURES = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    KubeConfigError,  # the token's file is gone
    msgspec.MsgspecError,  # an answer that is not the API's, as a proxy gives it
    KeyError,  # the same without a content type
    ValueError,
    OSError,
    RuntimeError,  # the client is closed
)
"""Errors that a call may raise in addition to unsuccessful answers."""


class Conflict(Exception):
    """The object was changed or created since it was read. This call has changed nothing."""


@dataclass(slots=True, eq=False)
class KubernetesApi:
    """The client of the API server in the settings. The constructor raises ConfigError."""

    _config: KubernetesConfig
    client: AsyncClient = field(init=False)
    server: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            found = _kube_config(self._config).get()
            assert found is not None
            self.server = found.cluster.server
            # The connect timeout is shorter: a connection that is cancelled within a handshake leaves its socket open.
            timeout = httpx2.Timeout(self.timeout_s, connect=self.timeout_s / 2)
            self.client = AsyncClient(found, self._config.namespace or None, timeout, trust_env=False)
        except Exception as error:
            raise ConfigError(f"coordinator kubernetes: {type(error).__name__}: {error}") from error

    @property
    def timeout_s(self) -> float:
        """Longest wait for an answer."""
        return self._config.timeout_ms / 1000

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Convert errors of a block's calls to Conflict, Refused and CoordinatorUnavailable, except TimeoutError."""
        try:
            yield
        except TimeoutError:
            raise
        except httpx2.HTTPStatusError as error:
            raise self._told(error) from error
        except _FAILURES as error:
            raise CoordinatorUnavailable(f"{self.server}: {type(error).__name__}: {error}") from error

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Convert errors as `failing`, and bound the time of the calls."""
        try:
            async with asyncio.timeout(self.timeout_s):
                with self.failing():
                    yield
        except TimeoutError as error:
            raise CoordinatorUnavailable(f"{self.server}: no answer for {self.timeout_s} s") from error

    def _told(self, error: httpx2.HTTPStatusError) -> Exception:
        """Return the exception for an unsuccessful answer."""
        code = code_of(error)
        told = f"{self.server}: {code} {error.status.message if isinstance(error, ApiError) else ''}".rstrip()
        if code == CONFLICT:
            return Conflict(told)
        return Refused(told) if 400 <= code < 500 and code != TOO_MANY else CoordinatorUnavailable(told)

    async def close(self) -> None:
        """End all calls and connections."""
        await self.client.close()


def code_of(error: httpx2.HTTPStatusError) -> int:
    """Return the code of an answer, or of an error that a watch received."""
    return error.status.code or 0 if isinstance(error, ApiError) else error.response.status_code


def _kube_config(config: KubernetesConfig) -> KubeConfig:
    return KubeConfig.from_file(config.config_file) if config.config_file else KubeConfig.from_service_account()
