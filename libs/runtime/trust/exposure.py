# SPDX-License-Identifier: Apache-2.0
"""Exposure: finds directories and secrets of a service that other users can read, and ports that others can reach.

As with ssh's keys, only files of this user are checked. Another owner, such as the owner of a volume of Kubernetes or
of a mounted Secret, decides about its files, and this user can't change them.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from libs.runtime.errors import ConfigError
from libs.runtime.settings import ListenConfig
from libs.runtime.trust.tokens import is_loopback

DIRECTORY_MASK = 0o077
SECRET_MASK = 0o037
"""The group of a file with a secret may read it: Kubernetes gives a pod its Secrets in this way."""

DIRECTORIES = ("data_dir", "log_dirs", "log_dirs_read_only")
SECRET_SUFFIXES = ("token_file", "key_file")


def exposed(settings: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for each directory and secret file of the settings that others can read."""
    for name, value in settings.items():
        if name in DIRECTORIES:
            paths = [Path(text.strip()) for text in str(value).split(",") if text.strip()]
            mask, command = DIRECTORY_MASK, "chmod 700"
        elif name.endswith(SECRET_SUFFIXES) and isinstance(value, Path):
            paths, mask, command = [value], SECRET_MASK, "chmod 600"
        else:
            continue
        for path in paths:
            if (mode := open_mode(path, mask)) is not None:
                yield f"{name}: other users of this machine can read {path} (its mode is {mode:o}): {command} {path}"


def open_mode(path: Path, mask: int = SECRET_MASK) -> int | None:
    """Return the mode of a file of this user that gives others a right of the mask, else None."""
    try:
        status = path.stat()
    except OSError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    return mode if status.st_uid == os.geteuid() and mode & mask else None


def check_reach(config: ListenConfig) -> None:
    """Raise ConfigError for an address that other machines can reach without TLS, unless the settings allow it."""
    has_tls = config.tls_certificate_file is not None
    if not has_tls and not config.allow_insecure and not is_loopback(config.listen_host):
        raise ConfigError(
            f"listen_host {config.listen_host} can be reached from other machines: set tls_certificate_file and "
            "tls_key_file, or allow_insecure = true"
        )
