# SPDX-License-Identifier: Apache-2.0
"""A loaded store of the revision before is upgraded to this revision, taken back, and upgraded again.

There is no release yet, so the earlier revision is the commit before the last version's large change, read from the
history of the repository. A clone without this history skips the test.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from libs.formats import store_layout
from libs.formats.state import checksummed, topic_journal
from tests.support.forks import REPOSITORY
from tools.setup_environment import uv_command

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.timeout(1800)]

BEFORE = "0cb1b662e014"
"""The revision before metrics by topic, rights, backups and retention by topic."""
LOAD = REPOSITORY / "tests/support/upgrade_load.py"
STAGE_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the earlier revision, from the history of this clone, with an environment from its own lock."""
    done = subprocess.run(["git", "archive", BEFORE], cwd=REPOSITORY, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this clone has no history back to {BEFORE}: git fetch --unshallow")
    tree = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(tree, filter="data")
    sync = [
        uv_command(),
        "sync",
        "--quiet",
        "--frozen",
        "--no-default-groups",
        "--group",
        "dev",
        "--python",
        sys.executable,
    ]
    variables = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    variables["REPUT_NO_EXTENSIONS"] = "1"
    done = subprocess.run(sync, cwd=tree, env=variables, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no environment for {BEFORE}: {done.stderr.decode()[-300:]}")
    return tree


def python_of(tree: Path) -> Path:
    """Return the interpreter of a tree's environment."""
    return tree / ".venv/bin/python"


def environment_of(tree: Path) -> Mapping[str, str]:
    """Return an environment in which a tree's own modules come before the installed ones."""
    paths = (tree, tree / "protos/python/src", tree / "clients/python/src")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def stage(tree: Path, directory: Path, number: int, *options: str) -> None:
    """Run a stage with the services and the client of a tree."""
    command = [python_of(tree), LOAD, directory, str(number), *options]
    done = subprocess.run(
        command,
        cwd=tree,
        env=environment_of(tree),
        capture_output=True,
        text=True,
        timeout=STAGE_TIMEOUT_S,
        check=False,
    )
    logs = "\n".join(file.read_text()[-2000:] for file in sorted(directory.glob("*.log")))
    assert done.returncode == 0, f"{tree}: {done.stdout[-2000:]}{done.stderr[-6000:]}\n{logs}"
    print(f"{'this revision' if tree == REPOSITORY else BEFORE}: {done.stdout.strip()}")


def test_the_trees_are_two_revisions(before: Path) -> None:
    """Each tree runs its own services and its own client."""
    program = (
        "import libs, reput_client, reput.common.v1, services.commitlog as s; print(s.__file__, reput_client.__file__)"
    )
    for tree in (before, REPOSITORY):
        done = subprocess.run(
            [python_of(tree), "-c", program],
            cwd=tree,
            env=environment_of(tree),
            capture_output=True,
            text=True,
            check=True,
        )
        assert all(path.startswith(f"{tree}/") for path in done.stdout.split()), done.stdout


def test_up_and_back_and_up_again(before: Path, tmp_path: Path) -> None:
    """Messages, places, acknowledgements, dead letters, delays, transactions and writers are kept by each step.

    Each revision verifies the store after its stage. The newer revision also uses what the older revision lacks.
    """
    stage(before, tmp_path, 0)
    stage(REPOSITORY, tmp_path, 1)
    stage(before, tmp_path, 2)
    stage(REPOSITORY, tmp_path, 3, "--last")


def test_a_newer_format_is_refused_and_kept(before: Path, tmp_path: Path) -> None:
    """The older revision refuses a file of a later version by its name with exit code 2, and changes nothing of it."""
    stage(before, tmp_path, 0)
    log = tmp_path / "log"
    newer = log / store_layout.TOPIC_JOURNAL
    newer.write_bytes(checksummed.wrap(topic_journal.KIND, b"{}", version=topic_journal.VERSION + 1))
    files = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    command = [python_of(before), "-m", "services.commitlog", "--data-dir", log, "--port", "0", "--metrics-port", "0"]
    done = subprocess.run(
        [*command, "--segment-size-bytes", str(1 << 20)],
        cwd=before, env=environment_of(before), capture_output=True, text=True, timeout=STAGE_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert f"{topic_journal.KIND} is of version {topic_journal.VERSION + 1}" in done.stderr, done.stderr
    assert {path: path.read_bytes() for path in files} == files
    newer.unlink()
    stage(REPOSITORY, tmp_path, 1, "--last")
