# SPDX-License-Identifier: Apache-2.0
"""Configuration: a frozen dataclass filled from defaults < TOML file < environment < flags.

Invariants: every value has a single source; an unknown key is an error that names the nearest known key; a value that
passes has the type and the bounds of its field (msgspec checks), and the class's own checks agreed.
A field that is itself a dataclass is a group: its fields are settings of the same section. If the group is of a kind
that may be used more than once (`IS_PREFIXED`), the names of its settings begin with the field's name. The sentence
under each field describes it; docs/configuration.md and `reput config show` print the sentence. The field's type is
marked as `Basic[…]` or `Advanced[…]`.
The process shell reads the configuration once; engines get the dataclass.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from libs.importance import Importance
from libs.runtime.errors import ConfigError

T = TypeVar("T")

SECTIONS = ("commitlog", "indexer", "janitor", "delivery", "gateway", "console")
"""Tables that a configuration file may have; a single file may configure all services."""

SECRET_SUFFIXES = ("_password", "_secret", "_token")
"""Suffixes of fields that are never printed. A file that holds a secret is named `…_file` and may be shown."""

MASK = "********"


class Field(msgspec.Struct, frozen=True):
    """A setting of a configuration class, as documentation and messages need it."""

    name: str
    type: Any
    default: object
    importance: Importance
    owner: Any
    """The class that declares it."""
    attribute: str
    """Its name there, without the prefix of a group."""

    @property
    def description(self) -> str:
        """The sentence under the field. It is read from the source, which takes milliseconds: a start reads none."""
        from libs.runtime.sentences import field_sentences

        found = field_sentences(self.owner).get(self.attribute, "")
        assert found, f"{self.owner.__name__}.{self.attribute} has no sentence under it"
        return found

    @property
    def is_basic(self) -> bool:
        """Whether an operator of a normal installation sets it."""
        return self.importance is Importance.BASIC

    @property
    def is_required(self) -> bool:
        """Whether the setting has no default."""
        return self.default is dataclasses.MISSING

    @property
    def is_secret(self) -> bool:
        """Whether the setting's value must not be printed."""
        return self.name.endswith(SECRET_SUFFIXES)

    @property
    def expectation(self) -> str:
        """The requirement on a value, as in `an integer from 0 to 65535`."""
        return expectation(self.type)


class GivenValue(msgspec.Struct, frozen=True):
    """A value as a source has it. Text may mean a number or a boolean if the source has only text."""

    value: object
    source: str
    is_text: bool


class Setting(msgspec.Struct, frozen=True):
    """An effective value and its source."""

    field: Field
    value: object
    source: str

    @property
    def shown_value(self) -> str:
        """The value as text, or a mask for a secret."""
        return MASK if self.field.is_secret and self.value else str(self.value)


class Loaded(msgspec.Struct, Generic[T], frozen=True):
    """A checked configuration with the source of each value, in the order of the fields."""

    value: T
    settings: tuple[Setting, ...]
    file: Path | None = None
    """The file that was read."""


def load(
    cls: type[T],
    *,
    section: str,
    file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
) -> Loaded[T]:
    """Merge the sources of a service and check them.

    `section` names the table of the TOML file and the middle of REPUT_<SECTION>_<FIELD>. `flags` maps field names to
    values; None means that the flag was not given. Raises ConfigError, one line.
    """
    assert section in SECTIONS
    fields = fields_of(cls)
    known = {field.name: field for field in fields}
    assert len(known) == len(fields), "two groups have a field of the same name"
    given: dict[str, GivenValue] = {}
    given.update(_from_file(file, section, known))
    given.update(_from_environment(environment, section, known))
    given.update(_from_flags(flags, known))
    settings = tuple(_setting(field, given.get(field.name), section) for field in known.values())
    try:
        value = build(cls, {setting.field.name: setting.value for setting in settings})
    except ValueError as error:
        raise ConfigError(f"configuration of {section}: {error}") from error
    return Loaded(value, settings, file)


def fields_of(cls: type, defaults: object = None) -> list[Field]:
    """Return the settings of a configuration class and its groups, in order. Each setting needs a mark.

    `defaults` is an instance whose values replace the class's own defaults; a group has such an instance.
    """
    assert dataclasses.is_dataclass(cls)
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: list[Field] = []
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        default = getattr(defaults, field.name, default)
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            prefix = _prefix(field.name, kind)
            fields += [msgspec.structs.replace(inner, name=prefix + inner.name) for inner in fields_of(kind, default)]
            continue
        importance, kind = _importance(kind)
        assert importance is not None, f"{cls.__name__}.{field.name} is marked neither Basic nor Advanced"
        fields.append(Field(field.name, kind, default, importance, cls, field.name))
    return fields


def environment_name(section: str, name: str) -> str:
    """Return the environment variable of a setting."""
    return f"REPUT_{section}_{name}".upper()


def flag_name(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def expectation(kind: Any) -> str:
    """Return a field's type and bounds in words."""
    bounds = ""
    if typing.get_origin(kind) is Annotated:
        kind, *metas = typing.get_args(kind)
        bounds = _bounds(next(meta for meta in metas if isinstance(meta, msgspec.Meta)))
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in typing.get_args(kind))
    if origin in (types.UnionType, typing.Union):
        return " or ".join("nothing" if part is type(None) else expectation(part) for part in typing.get_args(kind))
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    return words[kind] + bounds


def build(cls: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    """Make the dataclass and its groups from flat values, and call its `check()` if it has that method."""
    assert dataclasses.is_dataclass(cls)
    hints = typing.get_type_hints(cls)
    parts = {
        field.name: build(hints[field.name], values, _prefix(field.name, hints[field.name]))
        if dataclasses.is_dataclass(hints[field.name])
        else values[prefix + field.name]
        for field in dataclasses.fields(cls)
    }
    try:
        made = cls(**parts)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error
    check = getattr(made, "check", None)
    if check is not None:
        check()
    return made


def _importance(kind: Any) -> tuple[Importance | None, Any]:
    """Return the mark of a field's type, and the type without the mark."""
    if typing.get_origin(kind) is not Annotated:
        return None, kind
    plain, *metas = typing.get_args(kind)
    mark = next((meta for meta in metas if isinstance(meta, Importance)), None)
    others = [meta for meta in metas if meta is not mark]
    return mark, Annotated[plain, *others] if others else plain


def _prefix(name: str, kind: Any) -> str:
    """Return the prefix of the names of a group's settings."""
    return f"{name}_" if getattr(kind, "IS_PREFIXED", False) else ""


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge} to {meta.le}"
    if meta.ge is not None:
        return f" of at least {meta.ge}"
    if meta.le is not None:
        return f" of at most {meta.le}"
    return ""


def _from_file(file: Path | None, section: str, known: Mapping[str, Field]) -> dict[str, GivenValue]:
    if file is None:
        return {}
    import tomllib

    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not a TOML file: {error}") from error
    for table in document:
        if table not in SECTIONS:
            raise ConfigError(f"{file}: unknown table or key [{table}]{_nearest(table, SECTIONS)}")
    values = document.get(section, {})
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: {section} must be a table")
    for name in values:
        if name not in known:
            raise ConfigError(f"{file}: unknown key {name} in [{section}]{_nearest(name, known)}")
    return {name: GivenValue(value, f"{file}: [{section}] {name}", is_text=False) for name, value in values.items()}


def _from_environment(
    environment: Mapping[str, str], section: str, known: Mapping[str, Field]
) -> dict[str, GivenValue]:
    prefix = environment_name(section, "")
    names = {environment_name(section, name): name for name in known}
    given: dict[str, GivenValue] = {}
    for variable, value in environment.items():
        if not variable.startswith(prefix):
            continue
        if variable not in names or value.startswith("tcp://"):
            hint = _nearest(variable, names)
            if value.startswith("tcp://") or variable.startswith((f"{prefix}SERVICE_", f"{prefix}PORT_")):
                hint = "; Kubernetes made it for a Service of this name: set enableServiceLinks: false in the pod"
            raise ConfigError(f"unknown environment variable {variable}{hint}")
        given[names[variable]] = GivenValue(value, f"environment {variable}", is_text=True)
    return given


def _from_flags(flags: Mapping[str, object], known: Mapping[str, Field]) -> dict[str, GivenValue]:
    for name in flags:
        if name not in known:
            raise ConfigError(f"unknown flag {flag_name(name)}{_nearest(flag_name(name), map(flag_name, known))}")
    return {
        name: GivenValue(value, f"flag {flag_name(name)}", is_text=isinstance(value, str))
        for name, value in flags.items()
        if value is not None
    }


def _setting(field: Field, given: GivenValue | None, section: str) -> Setting:
    if given is None:
        if field.is_required:
            variable = environment_name(section, field.name)
            raise ConfigError(
                f"{field.name} is not set: give {flag_name(field.name)}, {variable} or {field.name} in [{section}]"
            )
        return Setting(field, field.default, "default")
    try:
        value = msgspec.convert(given.value, field.type, strict=not given.is_text, dec_hook=_decode)
    except msgspec.ValidationError as error:
        shown = MASK if field.is_secret else repr(given.value)
        raise ConfigError(f"{field.name} is {shown} ({given.source}), but must be {field.expectation}") from error
    return Setting(field, value, given.source)


def _decode(kind: type, raw: object) -> object:
    """Decode for msgspec the types that it does not know: paths, which are text in every source."""
    if kind is Path and isinstance(raw, str) and raw:
        return Path(raw)
    raise ValueError("not a path")


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    matches = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""
