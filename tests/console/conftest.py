# SPDX-License-Identifier: Apache-2.0
"""A browser, a filled store and its console for the tests of pages."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator

import pytest
import reput_client
from playwright.sync_api import Browser, Page, expect, sync_playwright
from reput_client import ConsumerOffset

from libs.runtime.trust.tokens import local_token_path
from tests.console.browsing import CHROMIUM, LIMIT_MS, page_of
from tests.console.filling import LONG_NAME, fill
from tests.support.console import RunningConsole, console_of
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

AXE = "axe-core@4.14.1"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=LIMIT_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with page_of(browser) as found:
        yield found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with something on each page: also a group with a long name, and some segments for the time line."""
    with store(tmp_path_factory.mktemp("console"), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets) as client:
            fill(client)
            client.groups.commit(LONG_NAME, [ConsumerOffset(LONG_NAME, 0, 0), ConsumerOffset("orders", 0, 0)])
            with client.producer() as producer:
                for _ in range(10):
                    producer.send("payments", os.urandom(300_000)).result()
        yield running


@pytest.fixture(scope="module")
def console(filled: Store) -> Iterator[RunningConsole]:
    token = str(local_token_path())
    with console_of(
        filled.targets, "--store-timeout-ms", "2000", "--store-token-file", token, "--allow-actions", "true"
    ) as running:
        yield running


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    directory = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", "--silent", AXE], cwd=directory, check=True, capture_output=True, timeout=LIMIT_S)
    with tarfile.open(next(directory.glob("axe-core-*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()
