# SPDX-License-Identifier: Apache-2.0
"""The shards of a store, as the setting `shards_file` names them."""

from collections.abc import Mapping
from pathlib import Path

from libs.formats.errors import BadField
from libs.runtime.errors import ConfigError
from libs.shards import shards_file
from libs.shards.shards_file import Shard


def shards_of(path: Path | None) -> Mapping[str, Shard]:
    """Return the shards of a file, nothing without a file. Raises ConfigError."""
    if path is None:
        return {}
    try:
        return shards_file.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"shards_file {path}: {error}") from error
    except BadField as error:
        raise ConfigError(f"shards_file {path}: {error.field}: {error.reason}") from error
