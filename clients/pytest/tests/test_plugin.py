# SPDX-License-Identifier: Apache-2.0
"""The plug-in as pytest users meet it: help, markers, options, and errors. Each case is a run of pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples/test_orders.py"
LIMIT_S = 240


def run_pytest(folder: Path, *arguments: str, code: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, on a test file with this code."""
    if code:
        (folder / "test_it.py").write_text(code)
    (folder / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REPUT_CLIENT"))}
    return subprocess.run(
        command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_help_names_fixtures_options_and_the_marker(tmp_path: Path) -> None:
    """`--help`, `--fixtures` and `--markers` have the parts of the plug-in."""
    told = run_pytest(tmp_path, "--help").stdout
    for word in ("a Reput store inside tests", "--reput-start-timeout", "reput_start_timeout", "reput_set_environment"):
        assert word in told
    fixtures = run_pytest(tmp_path, "--fixtures").stdout
    assert "A new Reput store in this process" in fixtures
    assert "A Reput store as processes" in fixtures
    assert "@pytest.mark.reput(commitlog={}" in run_pytest(tmp_path, "--markers").stdout


def test_a_run_without_the_fixtures_loads_no_store(tmp_path: Path) -> None:
    """The plug-in costs a run that does not use it nothing but its own module."""
    code = "import sys\ndef test_it():\n    assert not {'grpc', 'numpy', 'reput_client'} & sys.modules.keys()\n"
    done = run_pytest(tmp_path, code=code)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("marker", "part"),
    [
        ("commitlog={'no_such': 1}", "no_such"),
        ("broker={}", "there is no service broker, only commitlog, indexer, delivery, janitor"),
        ("'commitlog'", "the marker reput takes settings by service"),
    ],
)
def test_a_wrong_marker_is_named(tmp_path: Path, marker: str, part: str) -> None:
    """A setting or service that does not exist fails the test with its name."""
    code = f"import pytest\n@pytest.mark.reput({marker})\ndef test_it(reput):\n    pass\n"
    done = run_pytest(tmp_path, code=code)
    assert done.returncode == 1
    assert part in done.stdout


def test_a_missing_server_is_named(tmp_path: Path) -> None:
    """Without reput-server the error is a single sentence with the command that helps."""
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['reput_server'] = None\n")
    code = "def test_it(reput):\n    pass\ndef test_that(reput_processes):\n    pass\n"
    done = run_pytest(tmp_path, code=code)
    assert done.stdout.count("pip install reput-server") >= 2
    assert "Traceback" not in done.stdout


def test_a_project_with_packages_of_the_same_names(tmp_path: Path) -> None:
    """A project may have packages that are called `libs`, `services` and `cli`, imported before or after ours."""
    for name in ("libs", "services", "cli"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = {name!r}\n")
        (tmp_path / name / "late.py").write_text(f"OWN = {name!r}\n")
    code = (
        "import sys\nimport libs\n"
        "def test_it(reput):\n"
        "    import services, services.late, libs.late, cli\n"
        "    assert (libs.OWN, services.OWN, cli.OWN) == ('libs', 'services', 'cli')\n"
        "    assert services.late.OWN == 'services'\n"
        "    topic = reput.topic()\n"
        "    with reput.client().producer() as producer:\n"
        "        assert producer.send(topic, b'x').result().queue_offset == 0\n"
        "    reput.restart()\n"
        "    assert [name for name in sys.modules if name.startswith('services')] == ['services', 'services.late']\n"
    )
    done = run_pytest(tmp_path, "-p", "no:randomly", code=code, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout


def test_the_environment_is_left_alone_if_so_told(tmp_path: Path) -> None:
    """With reput_set_environment off, no variable is set."""
    code = "import os\ndef test_it(reput):\n    assert 'REPUT_CLIENT_COMMITLOG_TARGET' not in os.environ\n"
    done = run_pytest(tmp_path, "-o", "reput_set_environment=false", code=code)
    assert done.returncode == 0, done.stdout


def test_processes_have_the_clock_of_the_machine(tmp_path: Path) -> None:
    """A move of the clock is refused with the other fixture's name, and a late service shows its log."""
    code = (
        "import pytest\nfrom pytest_reput.errors import FixtureError\n"
        "def test_it(reput_processes):\n"
        "    with pytest.raises(FixtureError, match='uses the fixture reput'):\n"
        "        reput_processes.advance(hours=1)\n"
        "    with pytest.raises(FixtureError, match='uses the fixture reput'):\n"
        "        reput_processes.fail_next('append')\n"
    )
    done = run_pytest(tmp_path, code=code)
    assert done.returncode == 0, done.stdout
    done = run_pytest(tmp_path, "--reput-start-timeout", "0.01")
    assert "was not ready within 0 s; the end of" in done.stdout


def test_the_example(tmp_path: Path) -> None:
    """The example of the README passes."""
    done = run_pytest(tmp_path, code=EXAMPLE.read_text())
    assert done.returncode == 0, done.stdout
