# SPDX-License-Identifier: Apache-2.0
"""Values of options and arguments: converts the typed text to the type of the parameter.

Typer makes a pydantic adapter for each of them, and the import of pydantic alone takes longer than a whole command.
Commands use few types, which are read here; a parameter of another type is left to Typer.
"""

import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

NUMBERS: dict[type, str] = {int: "integer", float: "number"}
TRUTHS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("", "0", "false", "f", "no", "n", "off"), False),
}
"""Values of an environment variable for a flag."""


class Value:
    """Reads the typed text of a parameter. It replaces Typer's own reader, and has the same method."""

    def __init__(self, kind: type, parameter_info: Any) -> None:
        self._kind, self._info = kind, parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter, or of each of several. Raises BadParameter."""
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        try:
            return [self._one(item) for item in value] if is_list else self._one(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _one(self, value: Any) -> Any:
        if self._kind in NUMBERS:
            return self._number(value)
        if self._kind is bool:
            return self._truth(value)
        if issubclass(self._kind, Enum):
            return self._choice(value)
        if issubclass(self._kind, Path):
            return self._path(Path(value))
        return str(value)

    def _number(self, value: Any) -> Any:
        try:
            number = self._kind(value)
        except (ValueError, OverflowError):
            raise ValueError(f"{value!r} is no {NUMBERS[self._kind]}") from None
        low, high = self._info.min, self._info.max
        if not (low is None or number >= low) or not (high is None or number <= high):
            limits = " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))
            raise ValueError(f"{value} must be {limits}")
        return number

    def _truth(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if str(value).strip().lower() not in TRUTHS:
            raise ValueError(f"{value!r} is neither true nor false")
        return TRUTHS[str(value).strip().lower()]

    def _choice(self, value: Any) -> Any:
        choices = {str(choice.value): choice for choice in self._kind}  # type: ignore[attr-defined]
        if str(getattr(value, "value", value)) not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(map(repr, choices))}")
        return choices[str(getattr(value, "value", value))]

    def _path(self, path: Path) -> Path:
        info = self._info
        if not path.exists():
            if info.exists:
                raise ValueError(f"{str(path)!r} does not exist")
            return path
        if not info.file_okay and path.is_file():
            raise ValueError(f"{str(path)!r} is a file, not a directory")
        if not info.dir_okay and path.is_dir():
            raise ValueError(f"{str(path)!r} is a directory, not a file")
        if not os.access(path, os.R_OK):
            raise ValueError(f"{str(path)!r} is not readable")
        return path


def kind_of(annotation: Any) -> type | None:
    """Return the type of a value, None for a type that is not read here. `annotation` may be a list of values."""
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    is_known = isinstance(annotation, type) and (
        annotation in (str, int, float, bool) or issubclass(annotation, Enum | Path)
    )
    return annotation if is_known else None


def read_quickly(parameters: Iterable[Any]) -> None:
    """Have parameters of a command read here. A Typer that keeps its readers elsewhere is not changed by this."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        kind = kind_of(descriptor.annotation) if descriptor is not None else None
        if descriptor is not None and kind is not None and descriptor.parameter_info.parser is None:
            parameter._runtime_param = Value(kind, descriptor.parameter_info)  # noqa: SLF001 - Typer has no other way
