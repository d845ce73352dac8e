# SPDX-License-Identifier: Apache-2.0
"""Values of options are equal to Typer's, and the refusal of a bad value has its reason."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperGroup

from cli.commands.messages.put import DurabilityName
from cli.commands.typed.values import Value, kind_of, read_quickly


def command(
    count: Annotated[int | None, typer.Option(min=0, max=9)] = None,
    wait: Annotated[float, typer.Option(min=0)] = 0,
    name: str = "",
    names: Annotated[list[str] | None, typer.Option("--name-of")] = None,
    level: DurabilityName = DurabilityName.DEFAULT,
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    place: Annotated[Path | None, typer.Option(exists=True, file_okay=False)] = None,
    draft: Path | None = None,
    flag: Annotated[bool | None, typer.Option("--flag/--no-flag")] = None,
) -> None:
    """A command with an option of each type."""


def parameters() -> dict[str, Any]:
    """The parameters as Typer made them."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    made: Any = typer.main.get_command(app)
    assert not isinstance(made, TyperGroup)
    return {parameter.name: parameter for parameter in made.params}


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("count", None),
        ("count", "7"),
        ("count", "0"),
        ("count", "9"),
        ("count", "-1"),
        ("count", "10"),
        ("count", "x"),
        ("count", ""),
        ("wait", "0.5"),
        ("wait", "-1"),
        ("wait", "soon"),
        ("name", "\udcff"),
        ("name", ""),
        ("names", None),
        ("names", ("a", "b")),
        ("level", "local-disk"),
        ("level", DurabilityName.MEMORY),
        ("level", "LOCAL_DISK"),
        ("file", __file__),
        ("file", "/"),
        ("file", "/nowhere"),
        ("place", "/"),
        ("place", __file__),
        ("draft", "/nowhere"),
        ("flag", None),
        ("flag", "yes"),
        ("flag", "off"),
        ("flag", "perhaps"),
    ],
)
def test_values_are_typers(name: str, typed: Any) -> None:
    """Both give the same value, or both refuse the text."""
    slow, quick = parameters()[name], parameters()[name]
    read_quickly([quick])
    assert isinstance(quick.get_runtime_param(), Value)
    assert not isinstance(slow.get_runtime_param(), Value)
    outcomes = []
    for parameter in (slow, quick):
        try:
            outcomes.append(parameter.get_runtime_param().coerce(typed, param=parameter, ctx=None))
        except typer.BadParameter:
            outcomes.append(typer.BadParameter)
    assert outcomes[0] == outcomes[1]
    assert type(outcomes[0]) is type(outcomes[1])


@pytest.mark.parametrize(
    ("name", "typed", "text"),
    [
        ("count", "x", "'x' is no integer"),
        ("count", "10", "10 must be at least 0 and at most 9"),
        ("wait", "-1", "-1 must be at least 0"),
        ("level", "disk", "'disk' is not one of 'default', 'memory', 'local-disk', 'replicated'"),
        ("file", "/", "'/' is a directory, not a file"),
        ("place", "/nowhere", "'/nowhere' does not exist"),
        ("flag", "perhaps", "'perhaps' is neither true nor false"),
    ],
)
def test_refusals_name_value_and_limit(name: str, typed: str, text: str) -> None:
    """A refusal names the value and the limit, as every error does."""
    parameter = parameters()[name]
    read_quickly([parameter])
    with pytest.raises(typer.BadParameter) as caught:
        parameter.get_runtime_param().coerce(typed, param=parameter, ctx=None)
    assert caught.value.message == text


def test_other_types_are_left_to_typer() -> None:
    """An option of another type is read by Typer."""
    assert kind_of(dict) is None
    assert kind_of(list[dict[str, str]]) is None
    assert kind_of(list[Path]) is Path
