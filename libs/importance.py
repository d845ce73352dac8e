# SPDX-License-Identifier: Apache-2.0
"""The importance of a setting, as a mark on the type of its field: `data_dir: Basic[Path]`.

Both marks leave the type itself as it is. `libs.runtime.config` reads the marks, for pages and for the command line.
"""

from enum import StrEnum
from typing import Annotated, TypeVar

T = TypeVar("T")


class Importance(StrEnum):
    """Whether an operator of a normal installation sets a setting."""

    BASIC = "basic"
    """An installation needs a value of its own, or its operator is likely to want another value than the default."""

    ADVANCED = "advanced"
    """The default fits nearly all installations. The setting is for special machines, loads and failures."""


Basic = Annotated[T, Importance.BASIC]
Advanced = Annotated[T, Importance.ADVANCED]
