# SPDX-License-Identifier: Apache-2.0
"""The public names: each listed name exists, each public name is listed, and the asyncio side is a twin."""

import inspect
import re
from pathlib import Path

import pytest
import reput_client
from reput_client import aio, frames

TWINS = [
    (getattr(reput_client, name.removeprefix("Async")), getattr(aio, name))
    for name in aio.__all__
    if name.startswith("Async")
]


IMPORTING = {"Any", "TYPE_CHECKING", "import_module"}
"""The names that the package itself needs to import a name at its first use."""


@pytest.mark.parametrize("module", [reput_client, aio, frames])
def test_all_is_the_door(module) -> None:
    """`__all__` is sorted, complete, and names nothing that is missing."""
    assert module.__all__ == sorted(module.__all__)
    names = {name for name in dir(module) if not name.startswith("_")} - IMPORTING
    assert {name for name in names if not inspect.ismodule(getattr(module, name))} == set(module.__all__)


def test_types_are_shipped() -> None:
    """Type checkers look at the annotations of the package."""
    assert Path(inspect.getfile(reput_client)).with_name("py.typed").exists()


def test_everything_is_documented(subtests: pytest.Subtests) -> None:
    """Each public class and function, and each public method, has a docstring."""
    for name in (*reput_client.__all__, *frames.__all__):
        thing = getattr(reput_client if name in reput_client.__all__ else frames, name)
        with subtests.test(name):
            assert inspect.getdoc(thing)
            for method_name, method in vars(thing).items() if inspect.isclass(thing) else ():
                if inspect.isfunction(method) and not method_name.startswith("_"):
                    assert method.__doc__, f"{name}.{method_name}"


@pytest.mark.parametrize(("sync_class", "async_class"), TWINS, ids=lambda kind: kind.__name__)
def test_twins(sync_class: type, async_class: type) -> None:
    """The asyncio classes have the same methods with the same parameters and defaults."""

    def shape(kind: type) -> dict[str, list[tuple[str, object]]]:
        return {
            name: [(parameter.name, parameter.default) for parameter in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    left, right = shape(sync_class), shape(async_class)
    if sync_class in (reput_client.Producer, reput_client.ShardedProducer):
        left["flush"] = right["flush"]  # asyncio has its own time-outs
    assert left == right


def test_environment_variables_are_documented() -> None:
    """The README names every variable that the client reads."""
    from pathlib import Path

    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    source = inspect.getsource(inspect.getmodule(reput_client.Options))
    assert set(re.findall(r"REPUT_\w+", source)) <= set(re.findall(r"REPUT_\w+", readme))
