# SPDX-License-Identifier: Apache-2.0
"""`reput shards …`: the group, and arguments that several of its commands have."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.typed.group import command_group

shards = command_group("Shards: list them, make and change topics that lie on all of them, show where a topic is.")

FileOption = Annotated[
    Path,
    typer.Option(
        "--shards-file",
        envvar="REPUT_CLIENT_SHARDS_FILE",
        metavar="FILE",
        help="TOML file that names the shards, as the gateway has it.",
    ),
]
DEFAULT_FILE = Path("reput-data/shards.toml")
TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the queues after the change, and change nothing.")]
