# SPDX-License-Identifier: Apache-2.0
"""Pages of the services' metrics ports: /metrics and /settings, over HTTP or TLS, with a token if one is given."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from cli.exit_codes import CommandFailed, ExitCode

SIZE_BYTES_MAX = 64 << 20
TIMEOUT_S = 5.0


class Door(NamedTuple):
    """A metrics port: its URL, the authorities that its certificate needs, and the file with a token."""

    url: str
    ca_file: str | None = None
    token_file: Path | None = None


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirection: a token must not go to another server."""

    def redirect_request(self, *_arguments: object, **_names: object) -> None:
        """Return no request."""


def page_of(door: Door, path: str, *, timeout_s: float = TIMEOUT_S) -> bytes:
    """Return a page. Raises CommandFailed, and OSError for a file of the caller."""
    if not door.url.startswith(("http://", "https://")):
        raise CommandFailed("BAD_ARGUMENT", f"{door.url!r} must begin with http:// or https://", code=ExitCode.USAGE)
    headers = {}
    if door.token_file is not None:
        token = next(iter(door.token_file.read_text(encoding="utf-8").split()), "")
        headers["Authorization"] = f"Bearer {token}"
    authorities = door.ca_file if door.ca_file not in (None, "", "system") else None
    handlers: list[object] = [_NoRedirect(), ProxyHandler({})]
    if door.url.startswith("https://"):
        handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=authorities)))
    request = Request(door.url.rstrip("/") + path, headers=headers)  # noqa: S310 - checked above
    try:
        with build_opener(*handlers).open(request, timeout=timeout_s) as answer:  # type: ignore[arg-type]
            return bytes(answer.read(SIZE_BYTES_MAX))
    except HTTPError as error:
        said = error.read(500).decode("utf-8", "replace").strip()
        code = ExitCode.REFUSED if error.code in (401, 403) else ExitCode.UNAVAILABLE
        raise CommandFailed(code.name, f"{door.url}{path}: {error.code}: {said}", code=code) from error
    except (URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise CommandFailed("UNAVAILABLE", f"{door.url}{path}: {why}", code=ExitCode.UNAVAILABLE) from error
