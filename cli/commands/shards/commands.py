# SPDX-License-Identifier: Apache-2.0
"""All commands of `reput shards`, in the order of its help."""

from cli.commands.shards import topics  # noqa: I001 - the order of the imports is the order of the help
from cli.commands.shards import changes
from cli.commands.shards import drain
from cli.commands.shards.group import shards

__all__ = ["changes", "drain", "shards", "topics"]
