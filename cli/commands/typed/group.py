# SPDX-License-Identifier: Apache-2.0
"""Groups of commands: their help has a whole sentence for every command, even on a narrow terminal."""

import itertools
from typing import Any

import typer
from typer.core import TyperGroup

from cli.commands.typed.values import read_quickly


class Group(TyperGroup):
    """A group whose list of commands is not cut, and whose commands read their parameters quickly."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before a command's name, also options that Typer has added."""
        read_quickly(self.get_params(ctx))
        if "--json" in itertools.takewhile(lambda argument: argument.startswith("-"), args):
            ctx.fail("--json stands behind the command: reput topics list --json")
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None if there is none of this name."""
        command = super().get_command(ctx, cmd_name)
        read_quickly(command.get_params(ctx) if command is not None else ())
        return command

    def lines(self, context: Any) -> list[tuple[str, str]]:
        """Return each command's name and first sentence."""
        found = ((name, self.get_command(context, name)) for name in self.list_commands(context))
        return [(name, first_sentence(command.help or "")) for name, command in found if command is not None]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(self.lines(ctx))


def first_sentence(text: str) -> str:
    """Return a help text's first sentence, in a single line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    head, separator, _ = paragraph.partition(". ")
    return f"{head}." if separator else paragraph


def command_group(text: str) -> typer.Typer:
    """Return a group to put commands into."""
    return typer.Typer(cls=Group, no_args_is_help=True, help=text, rich_markup_mode=None, add_completion=False)
