# SPDX-License-Identifier: Apache-2.0
"""What a store costs a test: `pytest -s` prints the figures of a fresh run of pytest."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT_S = 240
CODE = """
import json, pathlib, re, sys, time

def test_first(request):
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    reput = request.getfixturevalue("reput")
    topic = reput.topic()
    with reput.client().producer() as producer:
        producer.send(topic, b"x").result()
    told = {"first_s": time.perf_counter() - begin_s, "first_cpu_s": time.process_time() - begin_cpu_s}
    status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss has the peak of the parent, too
    told["peak_mb"] = int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024
    told["late_count"] = sum(name in sys.modules for name in ("prometheus_client", "pyarrow", "opentelemetry.sdk"))
    print("TOLD", json.dumps(told))

def test_second(request):
    begin_s = time.perf_counter()
    request.getfixturevalue("reput")
    print("TOLD", json.dumps({"second_s": time.perf_counter() - begin_s}))
"""


def test_the_cost_of_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first store needs the imports, the second none; the figures depend on the machine, so they are printed."""
    (tmp_path / "test_it.py").write_text(CODE)
    (tmp_path / "pytest.ini").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plug-ins that this repository needs for its own tests

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    told: dict[str, float] = {}
    for line in run(
        "-m", "pytest", "-p", "pytest_reput.plugin", "-p", "no:cacheprovider", "-q", "-s"
    ).stdout.splitlines():
        if "TOLD " in line:
            told.update(json.loads(line.partition("TOLD ")[2]))
    imports = run("-X", "importtime", "-c", "import pytest; import pytest_reput.plugin").stderr.splitlines()
    plug_in_us = int(imports[-1].split("|")[1])
    with capsys.disabled():
        print(
            f"\nthe plug-in without a store: {plug_in_us / 1000:.1f} ms; first store and message: "
            f"{told['first_s']:.2f} s ({told['first_cpu_s']:.2f} s of the processor); second store: "
            f"{told['second_s']:.3f} s; peak of the test process: {told['peak_mb']:.0f} MB"
        )
    assert told["second_s"] < told["first_s"]
    assert told["peak_mb"] < 150
    assert told["late_count"] == 0, "a store in a test loads packages that it does not need"
