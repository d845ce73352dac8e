# SPDX-License-Identifier: Apache-2.0
"""Topics as Arrow: `read` gives record batches, for pandas, polars and DuckDB; `write` appends tables.

Needs the extra `frames` of reput-client, which is pyarrow, and `frames-json` or `frames-avro` for these decoders.
A name is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput_client.frames.calls import BadAnswerError
    from reput_client.frames.decode.avro import Avro
    from reput_client.frames.decode.decoder import Decoder
    from reput_client.frames.decode.json import Json
    from reput_client.frames.decode.protobuf import Protobuf
    from reput_client.frames.progress import Progress
    from reput_client.frames.reading import Frames, read
    from reput_client.frames.rows import BadRowError
    from reput_client.frames.writing import write

__all__ = [
    "Avro",
    "BadAnswerError",
    "BadRowError",
    "Decoder",
    "Frames",
    "Json",
    "Progress",
    "Protobuf",
    "read",
    "write",
]

_HOMES = {
    "Avro": "decode.avro",
    "BadAnswerError": "calls",
    "BadRowError": "rows",
    "Decoder": "decode.decoder",
    "Frames": "reading",
    "Json": "decode.json",
    "Progress": "progress",
    "Protobuf": "decode.protobuf",
    "read": "reading",
    "write": "writing",
}
"""The module of each name, for programs; the imports above say the same to type checkers."""

if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import and return a name of the package."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            home = import_module(f"{__name__}.{_HOMES[name]}")
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise ModuleNotFoundError(
                f"{__name__} needs pyarrow: install reput-client[frames]", name="pyarrow"
            ) from None
        value = globals()[name] = getattr(home, name)
        return value

    def __dir__() -> list[str]:
        """Return all names, imported or not."""
        return sorted({*globals(), *__all__})
