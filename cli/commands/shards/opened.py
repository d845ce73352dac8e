# SPDX-License-Identifier: Apache-2.0
"""The shards of a file, each with a client of its services."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import typer

from cli.connection.client import new_client, options_of
from cli.exit_codes import CommandFailed, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from reput_client import Client

    from libs.shards.shards_file import Shard

RETRIES = 2
"""A shard that is away is told at once. A change that is under way has a patience of its own."""


class Opened(NamedTuple):
    """The shards of a file, and their clients, by name in the order of the file."""

    shards: Mapping[str, Shard]
    clients: Mapping[str, Client]

    @property
    def for_topics(self) -> list[str]:
        """The shards that take new topics."""
        return [name for name, shard in self.shards.items() if shard.takes_topics]

    def check(self, names: Sequence[str], hint: str) -> None:
        """Raise BadParameter if a name is not the name of a shard."""
        for name in names:
            if name not in self.shards:
                raise typer.BadParameter(
                    f"the file has the shards {', '.join(self.shards)}, not {name}", param_hint=hint
                )


@contextmanager
def opened_shards(context: typer.Context, file: Path) -> Iterator[Opened]:
    """Make a client for each shard of the file, with the options before the command. Raises CommandFailed."""
    options, shards = options_of(context), _shards(file)
    from reput_client import RetryPolicy

    with ExitStack() as opened:
        clients = {}
        for name, shard in shards.items():
            own = replace(
                options,
                commitlog=shard.commitlog,
                indexer=shard.indexer,
                delivery=shard.delivery,
                janitor=shard.janitor or options.janitor,
            )
            clients[name] = opened.enter_context(new_client(own, RetryPolicy(retries=RETRIES)))
        yield Opened(shards, clients)


def _shards(file: Path) -> Mapping[str, Shard]:
    from libs.formats.errors import BadField
    from libs.shards import shards_file

    try:
        return shards_file.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"{file}: {error.strerror}; --shards-file or REPUT_CLIENT_SHARDS_FILE names the file of the gateway"
        raise CommandFailed("NO_SHARDS_FILE", text, code=ExitCode.USAGE) from error
    except (BadField, UnicodeDecodeError) as error:
        raise CommandFailed("BAD_SHARDS_FILE", f"{file}: {error}", code=ExitCode.USAGE) from error
