# SPDX-License-Identifier: Apache-2.0
"""AccessKeys: admits callers by the access keys of a file, which is read again when it changes.

A line is a key, a space and its secret. A key may have several lines while its secret is replaced: each secret is
right. When the file becomes unreadable, the keys of the last read remain.
"""

import logging
import stat
from pathlib import Path

from libs.runtime.errors import ConfigError
from libs.runtime.trust.tokens import WatchedFiles, read_file
from services.gateway.engine.signature import Signature
from services.gateway.rpc.caller import Context, metadata_of

SETTING = "access_keys_file"
OTHERS = 0o037
"""Permissions that the file must not grant. Its group may read it, because a pod gets its Secrets in this way."""

_log = logging.getLogger(__name__)


class AccessKeys:
    """The check of access keys. Without a file every client may call. Raises ConfigError for an unusable file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        if path is not None:
            self._watched = WatchedFiles([path])
            self._secrets = _read(path)

    def check(self, context: Context) -> str:
        """Return the caller's access key, if its signature is right. Empty without a file. Raises Refused."""
        if self._path is None:
            return ""
        if self._watched.have_changed():
            try:
                self._secrets = _read(self._path)
                _log.info("%s: %s has changed and is read", SETTING, self._path)
            except ConfigError as error:
                _log.warning("%s; the keys that it had before stay good", error)
        said = metadata_of(context)
        signature = Signature.parse(said.get("authorization", ""))
        signature.check(self._secrets.get(signature.key, ()), said.get("x-mq-date-time", ""))
        return signature.key


def _read(path: Path) -> dict[str, list[bytes]]:
    text = read_file(SETTING, path)
    if stat.S_IMODE(path.stat().st_mode) & OTHERS:
        raise ConfigError(f"{SETTING}: {path}: nobody else may read it (chmod 600), but for its group (chmod 640)")
    secrets: dict[str, list[bytes]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        if len(words) != 2 or not line.isascii():
            raise ConfigError(f"{SETTING}: {path}: line {number} must be a key, a space and its secret, in ASCII")
        secrets.setdefault(words[0].decode(), []).append(words[1])
    if not secrets:
        raise ConfigError(f"{SETTING}: {path}: the file has no key")
    return secrets
