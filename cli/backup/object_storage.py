# SPDX-License-Identifier: Apache-2.0
"""Object storage as a place of backups, by obstore: S3, Google Cloud Storage, Azure.

An object is put in one request and read in one request, so it is seen whole or not at all. obstore repeats requests
that fail for a moment, with growing pauses, for `retry_s` seconds. It gives up at once for a deletion without an answer
and for a list that was cut; these are repeated here, because repeating them changes nothing.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlsplit

from cli.backup.errors import BackupDamaged, BackupError, PlaceFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import ObjectStore

T = TypeVar("T")

SCHEMES = ("s3", "gs", "abfs", "abfss")
RETRY_S, TIMEOUT_S = 180.0, 120.0
SECONDS_MAX = 86_400.0
FIRST_PAUSE_S, PAUSE_S_MAX = 0.1, 10.0
CONNECT_TIMEOUT_S_MAX = 10.0
RETRY_COUNT_MAX = 100_000
"""More than fit in any time: the time alone ends the retries."""
ERROR_SIZE_MAX = 600
ROLE_HOST = "169.254.169.254"
"""The address at which a machine of AWS tells the credentials of its role."""
UNANSWERED = "HTTP error: "
"""Part of obstore's errors for requests without a whole answer. An answer with an error has another text."""


class Options(NamedTuple):
    """The options of a URL, behind its question mark."""

    endpoint: str = ""
    """URL of another S3 server than AWS."""
    region: str = ""
    retry_s: float = RETRY_S
    """Seconds for which a failing request is repeated."""
    timeout_s: float = TIMEOUT_S
    """Seconds after which a request without an answer has failed."""


class ObjectStorage:
    """A prefix in object storage."""

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0].rstrip("/")
        self._options = options_of(url)
        try:
            import obstore
        except ImportError as error:
            raise BackupError(f"{self._url}: object storage needs obstore: pip install obstore") from error
        self._obstore = obstore
        with self._failing("open"):
            self._store = _open(self._url, self._options)

    def read(self, name: str) -> bytes:
        """Return all bytes of an object."""
        with self._failing("read", name):
            try:
                return bytes(self._obstore.get(self._store, name).bytes())
            except FileNotFoundError as error:
                raise BackupDamaged(f"{self._url}/{name} is missing") from error

    def write(self, name: str, data: bytes | bytearray) -> None:
        """Put an object."""
        with self._failing("write", name):
            self._obstore.put(self._store, name, bytes(data), use_multipart=False)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of the objects below a folder."""
        prefix = f"{folder}/"

        def found() -> dict[str, int]:
            listed = (found for part in self._obstore.list(self._store, folder) for found in part)
            return {found["path"].removeprefix(prefix): found["size"] for found in listed}

        with self._failing("list", folder):
            return self._repeated(found)

    def delete(self, name: str) -> None:
        """Remove an object."""
        with self._failing("delete", name):
            try:
                self._repeated(lambda: self._obstore.delete(self._store, name))
            except FileNotFoundError:
                return

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: object storage has no locks. docs/backup.md says to run a single command at a time."""
        yield

    def _repeated(self, action: Callable[[], T]) -> T:
        """Repeat the requests that obstore does not repeat, until the time for retries is over."""
        end_s, pause_s = time.monotonic() + self._options.retry_s, FIRST_PAUSE_S
        while True:
            try:
                return action()
            except self._obstore.exceptions.GenericError as error:
                if UNANSWERED not in str(error) or time.monotonic() + pause_s > end_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    @contextmanager
    def _failing(self, doing: str, name: str = "") -> Iterator[None]:
        place = f"{self._url}/{name}".rstrip("/")
        try:
            yield
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            text = " ".join(str(error).partition("\n\nDebug source")[0].split())
            raise PlaceFailed(f"{place}: could not {doing} it: {explained(text[:ERROR_SIZE_MAX])}") from error


def explained(text: str) -> str:
    """Return the text of an error, with what it means if a role of the machine was asked for and is not there."""
    if ROLE_HOST not in text:
        return text
    return (
        f"no credentials are given (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), and the machine has no role: {text}"
    )


def options_of(url: str) -> Options:
    """Return the options of a URL. Raises BackupError."""
    parts = urlsplit(url)
    place = url.partition("?")[0]
    if not parts.netloc:
        raise BackupError(f"{place}: there is no bucket: {parts.scheme}://BUCKET/PREFIX")
    texts = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = Options._fields if parts.scheme == "s3" else ("retry_s", "timeout_s")
    if unknown := sorted(texts.keys() - set(known)):
        raise BackupError(f"{place}: {unknown[0]!r} is no option: {', '.join(known)} are")
    endpoint = texts.get("endpoint", "")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise BackupError(f"{place}: endpoint is {endpoint!r}, and must begin with http:// or https://")
    return Options(
        endpoint,
        texts.get("region", ""),
        _seconds(place, "retry_s", texts, RETRY_S, 0.0),
        _seconds(place, "timeout_s", texts, TIMEOUT_S, 0.1),
    )


def _seconds(place: str, name: str, texts: dict[str, str], default: float, least: float) -> float:
    text = texts.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= SECONDS_MAX:
        raise BackupError(f"{place}: {name} is {text!r}, and must be seconds from {least:g} to {SECONDS_MAX:g}")
    return value


def _open(url: str, options: Options) -> ObjectStore:
    from obstore.store import from_url

    named: dict[str, Any] = {
        name: value for name, value in options._asdict().items() if value and name in ("endpoint", "region")
    }
    return from_url(
        url,
        client_options={
            "allow_http": True,
            "timeout": timedelta(seconds=options.timeout_s),
            "connect_timeout": timedelta(seconds=min(options.timeout_s, CONNECT_TIMEOUT_S_MAX)),
        },
        retry_config={
            "max_retries": RETRY_COUNT_MAX if options.retry_s else 0,
            "retry_timeout": timedelta(seconds=options.retry_s),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_PAUSE_S),
                "max_backoff": timedelta(seconds=PAUSE_S_MAX),
                "base": 2,
            },
        },
        **named,
    )
