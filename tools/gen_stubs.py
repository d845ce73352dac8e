# SPDX-License-Identifier: Apache-2.0
"""Generate the Python stubs from protos/. `--check` fails if the stubs in the repository differ.

Stubs of our APIs are written to protos/python/src, which is published. Messages of a foreign API that a service calls
are written to the room that calls it. Stubs are typed (mypy-protobuf) and never edited by hand. `_grpc` modules are
made only for files that define a service.
"""

import argparse
import filecmp
import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = PROTOS / "python" / "src"
ROOMS = {
    "reput_etcd/v3": Path("services/commitlog/rpc/coordinate"),
    "reput_rocketmq/v2": Path("services/gateway/rpc/wire"),
}
"""Maps each folder of protos whose messages are for a single room to the room."""
HEAD = "# SPDX-License-Identifier: Apache-2.0\n"
"""The first line of stubs in a room, as in all files there."""


def find_sources() -> list[Path]:
    """Return all protos of the repository."""
    return sorted(PROTOS.glob("reput*/**/*.proto"))


def generate(target: Path) -> None:
    """Write the stubs of our APIs below `target`."""
    sources = [path for path in find_sources() if path.is_relative_to(PROTOS / "reput")]
    services = [path for path in sources if path.stem.endswith("_service")]
    includes = include_flags()
    run_protoc([*includes, *_message_flags(target), *map(str, sources)])
    run_protoc(
        [
            *includes,
            _plugin_flag("mypy_grpc"),
            f"--grpc_python_out={target}",
            f"--mypy_grpc_out=quiet:{target}",
            *map(str, services),
        ]
    )


def generate_rooms(target: Path) -> None:
    """Write the messages that are for a single room below `target`, at the room's path below the root."""
    for folder, room in ROOMS.items():
        names = [str(room / path.name) for path in sorted((PROTOS / folder).glob("*.proto"))]
        # protoc sees the folder as the room, so that it makes a stub for the name under which the stub is imported
        run_protoc([f"-I{room}={PROTOS / folder}", *include_flags(), *_message_flags(target), *names])
        for stub in (target / room).iterdir():
            stub.write_text(HEAD + stub.read_text(), encoding="utf-8")


def _message_flags(target: Path) -> list[str]:
    return [_plugin_flag("mypy"), f"--python_out={target}", f"--mypy_out=quiet:{target}"]


def _plugin_flag(name: str) -> str:
    # mypy-protobuf's plugins are beside the interpreter, which need not be on PATH
    return f"--plugin=protoc-gen-{name}={Path(sys.executable).parent / f'protoc-gen-{name}'}"


def include_flags() -> list[str]:
    """Return the flags with the folders of our protos, and of the protos that come with protoc."""
    return [f"-I{PROTOS}", f"-I{files('grpc_tools') / '_proto'}"]


def run_protoc(arguments: list[str]) -> None:
    """Run protoc in this process. A failure ends the program."""
    if protoc.main(["protoc", *arguments]) != 0:
        raise SystemExit("protoc failed")


def differences(left: Path, right: Path, folders: Iterable[str | Path]) -> list[str]:
    """Return the relative paths of stubs in the folders that differ or are missing on a side."""
    names = {
        path.relative_to(side)
        for side in (left, right)
        for folder in folders
        for path in (side / folder).rglob("*_pb2*.py*")
        if "__pycache__" not in path.parts
    }
    return sorted(str(name) for name in names if not _same(left / name, right / name))


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and filecmp.cmp(left, right, shallow=False)


def main() -> None:
    """Generate the stubs, or compare them with the files in the repository."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the stubs are not up to date")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as published, tempfile.TemporaryDirectory() as server:
        generate(Path(published))
        generate_rooms(Path(server))
        stale = {
            (Path(published), TARGET): differences(Path(published), TARGET, ["reput"]),
            (Path(server), ROOT): differences(Path(server), ROOT, ROOMS.values()),
        }
        names = [name for found in stale.values() for name in found]
        if arguments.check:
            if names:
                raise SystemExit("stubs are not up to date, run `make gen`: " + ", ".join(names))
            return
        for (fresh, target), found in stale.items():
            for name in found:
                (target / name).unlink(missing_ok=True)
            shutil.copytree(fresh, target, dirs_exist_ok=True)
        print(f"{len(names)} stubs changed")


if __name__ == "__main__":
    main()
