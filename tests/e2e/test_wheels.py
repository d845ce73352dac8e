# SPDX-License-Identifier: Apache-2.0
"""The wheels in an empty environment, without a compiler and without Java: the README's steps of installing work."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from pytest_reput import Reput

from tests.support.forks import REPOSITORY
from tests.support.patience import LIMIT_S
from tests.support.reput_up import FREE_PORTS, WITH_GATEWAY
from tests.support.surroundings import ANY_DISK, interrupt_by_default
from tools import wheels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no compiler is taken away elsewhere")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels in `dist`."""
    home = tmp_path_factory.mktemp("wheels")
    wheels.build(home / "dist")
    return home


@pytest.fixture(scope="module")
def environment(home: Path) -> Path:
    """An environment with the client and the server, installed without any program of the machine's."""
    venv.create(home / "env", with_pip=True)
    installed(home / "env", home / "dist/locked-server.txt")
    return home / "env"


def installed(environment: Path, locked: Path) -> None:
    """Install a program by its digests, without any program of the machine's. Skips the test without an index."""
    variables = {**os.environ, "PATH": str(environment / "nothing"), "CC": "/bin/false", "JAVA_HOME": "/nowhere"}
    variables.pop("PYTHONPATH", None)
    command = [environment / "bin/pip", "install", "--quiet", "-r", locked]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd=environment)
    if "No matching distribution" in done.stderr and "reput" not in done.stderr:
        pytest.skip("the package index does not answer")
    assert done.returncode == 0, done.stderr


def test_what_is_in_them(environment: Path) -> None:
    """Each wheel has the licence and a version, the server's the compiled kernel, the client's its compiled parts."""
    shown = (
        "import importlib.metadata as m, reput_client\n"
        "for name in ('reput-protos', 'reput-client', 'reput-server'):\n"
        "    assert any(str(file).endswith('licenses/LICENSE') for file in m.files(name)), name\n"
        "assert reput_client.__version__ == m.version('reput-client')\n"
        "import sys, reput_server; sys.path.insert(0, str(reput_server.ROOT))\n"
        "import libs.kernel; assert libs.kernel.IS_COMPILED\n"
        "from reput_client.core import speedups; assert speedups.IS_COMPILED\n"
    )
    subprocess.run([environment / "bin/python", "-I", "-c", shown], check=True, cwd=environment)


def test_the_client_for_all_machines(home: Path) -> None:
    """The client also has a wheel without compiled parts, which no pattern for the others names."""
    (pure,) = (home / "dist" / wheels.PURE).glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(pure).namelist() if name.endswith((".so", ".c"))]


def test_the_bill_of_materials_has_each_locked_dependency(home: Path) -> None:
    """The SBOM lists each package of the constraints in its version, with the digests of its files."""
    bill = json.loads((home / "dist" / wheels.BILL).read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    listed = {(one["name"], one.get("version")): one for one in bill["components"]}
    constraints = (home / "dist" / wheels.CONSTRAINTS).read_text()
    locked = re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", constraints, re.MULTILINE)
    assert len(locked) > 30
    for name, version in locked:
        component = listed[name, version]
        assert component["purl"].startswith(f"pkg:pypi/{name}@")
        assert all(file["hashes"] for file in component["externalReferences"])


def test_an_extra_that_is_missing_is_named(environment: Path) -> None:
    """`reput mcp` without its extra says which one to install."""
    command = [environment / "bin/reput", "mcp"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'reput-server[mcp]'" in done.stderr


def test_first_lines(environment: Path, tmp_path: Path) -> None:
    """`reput up` serves, and the README's Python example stores and finds a message."""
    variables = {**os.environ, **ANY_DISK, "PATH": f"{environment / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    variables.pop("PYTHONPATH", None)
    command = [environment / "bin/reput", "up", "--data-dir", tmp_path / "data", *FREE_PORTS, *WITH_GATEWAY, "--json"]
    with (
        interrupt_by_default(),
        subprocess.Popen(command, env=variables, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running,
    ):
        try:
            assert running.stdout is not None
            ready = json.loads(running.stdout.readline())
            readme = (REPOSITORY / "README.md").read_text()
            example = re.search(r"```python\n(from reput_client.*?)```", readme, re.DOTALL)
            assert example is not None
            code = example[1].replace("localhost:8081", ready["gateway"])
            printed = _run([environment / "bin/python", "-c", code], variables, tmp_path)
            assert printed == "0 b'hello'\n"
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(LIMIT_S)


@pytest.mark.long
def test_a_project_tests_with_its_own_pytest(home: Path, tmp_path: Path) -> None:
    """A project outside of the repository installs pytest-reput, and its tests pass: the example, and processes.

    The project has packages of the names that ours have in a checkout.
    """
    venv.create(tmp_path / "env", with_pip=True)
    installed(tmp_path / "env", home / "dist/locked-pytest.txt")
    project = tmp_path / "project"
    for name in ("cli", "libs", "services"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(f"OWN = {name!r}\n")
    shutil.copy(REPOSITORY / "clients/pytest/examples/test_orders.py", project)
    (project / "test_own.py").write_text(
        "import services\n"
        "def test_both(reput, reput_processes):\n"
        "    for store in (reput, reput_processes):\n"
        "        with store.client().producer() as producer:\n"
        "            assert producer.send(store.topic(), b'x').result().queue_offset == 0\n"
        "    assert services.OWN == 'services'\n"
    )
    (project / "pytest.ini").write_text("[pytest]\npythonpath = .\nfilterwarnings = error\n")
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "REPUT"))
    }
    printed = _run([tmp_path / "env/bin/pytest", "-q"], variables, project)
    assert "4 passed" in printed


@pytest.mark.long
def test_a_program_with_an_outbox(home: Path, tmp_path: Path, reput_processes: Reput) -> None:
    """A program outside of the repository installs reput-outbox: its example runs, and so does its command."""
    venv.create(tmp_path / "env", with_pip=True)
    installed(tmp_path / "env", home / "dist/locked-outbox.txt")
    shutil.copy(REPOSITORY / "clients/outbox/examples/shop_sqlalchemy.py", tmp_path)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REPUT"))}
    variables |= reput_processes.environment
    printed = _run([tmp_path / "env/bin/python", "shop_sqlalchemy.py"], variables, tmp_path)
    assert printed == "an order of anna\nan order of ben\n"
    status = [tmp_path / "env/bin/reput-outbox", "status", "--database", "sqlite:///shop.db"]
    assert "2 sent" in _run(status, variables, tmp_path)
    _run([tmp_path / "env/bin/python", "-c", "import reput_outbox.django.apps"], variables, tmp_path)


@pytest.mark.long
def test_an_application_of_celery(home: Path, tmp_path: Path, reput_processes: Reput) -> None:
    """An application outside of the repository installs kombu-reput: a worker and the example run tasks."""
    venv.create(tmp_path / "env", with_pip=True)
    installed(tmp_path / "env", home / "dist/locked-kombu.txt")
    shutil.copy(REPOSITORY / "clients/kombu/examples/tasks.py", tmp_path)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "REPUT"))}
    variables |= reput_processes.environment
    worker = [tmp_path / "env/bin/celery", "-A", "tasks", "worker", "-c", "2"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(worker, env=variables, cwd=tmp_path, stdout=log, stderr=log) as running,
    ):
        try:
            printed = _run([tmp_path / "env/bin/python", "tasks.py"], variables, tmp_path)
        finally:
            running.send_signal(signal.SIGTERM)
    assert "(3 + 4) + 5 = 12" in printed
    assert running.returncode == 0, (tmp_path / "log").read_text()


@pytest.mark.parametrize("place", ["PYTHONPATH", "."])
def test_nobody_else_s_packages_are_taken_for_ours(environment: Path, tmp_path: Path, place: str) -> None:
    """Other packages named `cli`, `libs` or `services` are never imported in place of ours, also by `up`.

    They may be in PYTHONPATH or in the folder where a command is started.
    """
    for name in ("cli", "libs", "services"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('another package was taken for ours')\n")
    variables = {**os.environ, **ANY_DISK, "HOME": str(tmp_path)}
    variables.pop("PYTHONPATH", None)
    if place == "PYTHONPATH":
        variables["PYTHONPATH"] = str(tmp_path)
    for program in ([environment / "bin/reput"], [environment / "bin/python", "-m", "reput_server"]):
        assert _run([*program, "--version"], variables, tmp_path).startswith("reput ")
    command = [environment / "bin/reput", "up", "--data-dir", tmp_path / "data", *FREE_PORTS, "--json"]
    with (
        interrupt_by_default(),
        subprocess.Popen(command, env=variables, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running,
    ):
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["commitlog"]
        running.send_signal(signal.SIGINT)
        running.wait(LIMIT_S)


def _run(command: list[str | Path], variables: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        command, env=variables, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_with_another_digest_is_refused(home: Path, environment: Path) -> None:
    """Each package of each program has a digest, also ours. A wheel with another digest is refused."""
    for name in wheels.LOCKED:
        text = (home / f"dist/locked-{name}.txt").read_text()
        for package in re.findall(r"^[a-z].*?(?=^[a-z]|\Z)", text, re.MULTILINE | re.DOTALL):
            assert "==" in package
            assert " --hash=sha256:" in package
    assert wheels.install_line(Path("dist")) == "pip install -r dist/locked-server.txt"
    other = home / "other"
    other.mkdir()
    for wheel in (home / "dist").glob("*.whl"):
        shutil.copy(wheel, other)
    (harmed,) = other.glob("reput_protos-*.whl")
    harmed.write_bytes(harmed.read_bytes() + b"\0")
    shutil.copy(home / "dist/locked-client.txt", other)
    command = [
        environment / "bin/pip",
        "download",
        "--no-deps",
        "--quiet",
        "-d",
        home,
        "-r",
        other / "locked-client.txt",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "reput-protos" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("python", os.environ.get("REPUT_PYTHONS", "python3.12 python3.13 python3.14").split())
def test_other_pythons(tmp_path: Path, python: str) -> None:
    """The wheels of another Python work there: the server with the README's example, the client alone, the connector.

    REPUT_PYTHONS has the commands; those that are not on this machine are skipped.
    """
    if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} is not there")
    wheels.build(tmp_path / "dist", [python])
    for name in wheels.LOCKED:
        subprocess.run([python, "-m", "venv", tmp_path / name], check=True)
        installed(tmp_path / name, tmp_path / f"dist/locked-{name}.txt")
    test_what_is_in_them(tmp_path / "server")
    test_first_lines(tmp_path / "server", tmp_path)
    for name, line in (("client", "import reput_client"), ("spark", "import reput_spark.values, reput_spark.write")):
        subprocess.run([tmp_path / name / "bin/python", "-I", "-c", line], check=True, cwd=tmp_path)
