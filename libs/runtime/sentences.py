# SPDX-License-Identifier: Apache-2.0
"""The sentences under the fields of dataclasses and structs: the help of settings and of metrics."""

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
import typing
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


@functools.cache
def field_sentences(cls: type) -> Mapping[str, str]:
    """Return the string under each field in the source, of the class itself and of its bases.

    The first call for a class parses its source: this takes milliseconds.
    """
    sentences: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if base is Struct or not (dataclasses.is_dataclass(base) or issubclass(base, Struct)):
            continue
        body = typing.cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]).body
        for statement, following in itertools.pairwise(body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    sentences[name] = " ".join(text.split())
    return MappingProxyType(sentences)
