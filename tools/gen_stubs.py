# SPDX-License-Identifier: Apache-2.0
"""Generate the Python stubs from protos/ into protos/python/src. `--check` fails if what is checked in differs.

Stubs are typed (mypy-protobuf) and never edited by hand. `_grpc` modules are made only for files that define a service.
"""

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = PROTOS / "python" / "src"


def generate(target: Path) -> None:
    """Write all stubs below `target`."""
    sources = sorted(path for path in PROTOS.glob("reput/**/*.proto"))
    services = [path for path in sources if path.stem.endswith("_service")]
    # mypy-protobuf's plugin stands beside the interpreter, which need not be on PATH
    plugins = Path(sys.executable).parent
    includes = include_flags()
    plugin = f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}"
    grpc_plugin = f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}"
    run_protoc([*includes, plugin, f"--python_out={target}", f"--mypy_out=quiet:{target}", *map(str, sources)])
    run_protoc(
        [
            *includes,
            grpc_plugin,
            f"--grpc_python_out={target}",
            f"--mypy_grpc_out=quiet:{target}",
            *map(str, services),
        ]
    )


def include_flags() -> list[str]:
    """Return where protoc finds our protos and Google's, the latter from the installed packages."""
    import google.rpc

    googleapis = Path(next(iter(google.rpc.__path__))).parent.parent
    return [f"-I{PROTOS}", f"-I{files('grpc_tools') / '_proto'}", f"-I{googleapis}"]


def run_protoc(arguments: list[str]) -> None:
    """Run protoc in this process. A failure ends the program."""
    if protoc.main(["protoc", *arguments]) != 0:
        raise SystemExit("protoc failed")


def differences(left: Path, right: Path) -> list[str]:
    """Return the relative paths of stubs that differ or that only one side has."""
    names = {
        path.relative_to(side)
        for side in (left, right)
        for path in side.glob("reput/**/*_pb2*.py*")
        if "__pycache__" not in path.parts
    }
    return sorted(str(name) for name in names if not _same(left / name, right / name))


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and filecmp.cmp(left, right, shallow=False)


def main() -> None:
    """Generate, or compare with what is checked in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the stubs are not up to date")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        stale = differences(fresh, TARGET)
        if arguments.check:
            if stale:
                raise SystemExit("stubs are not up to date, run `make gen`: " + ", ".join(stale))
            return
        for name in stale:
            (TARGET / name).unlink(missing_ok=True)
        shutil.copytree(fresh / "reput", TARGET / "reput", dirs_exist_ok=True)
        print(f"{len(stale)} stubs changed")


if __name__ == "__main__":
    main()
