# SPDX-License-Identifier: Apache-2.0
"""Exposure: a start reports the directories and secrets that other users can read."""

from pathlib import Path

import pytest

from libs.runtime.trust.exposure import exposed


@pytest.mark.parametrize(("mode", "is_told"), [(0o700, False), (0o750, True), (0o755, True), (0o701, True)])
def test_a_directory_is_for_its_user(tmp_path: Path, mode: int, is_told: bool) -> None:
    """Permissions of the group or of others on the messages are reported, with the command that removes them."""
    path = tmp_path / "store"
    path.mkdir()
    path.chmod(mode)
    told = list(exposed({"data_dir": path, "log_dirs": f"{path}, {tmp_path / 'missing'}", "listen_host": "x"}))
    assert len(told) == (2 if is_told else 0)
    assert all(f"(its mode is {mode:o}): chmod 700 {path}" in line for line in told)


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o440, False), (0o644, True), (0o660, True)])
def test_a_secret_is_for_its_user_and_group(tmp_path: Path, mode: int, is_told: bool) -> None:
    """A token or private key that others can read is reported.

    Its group may read it, as in a pod.
    """
    path = tmp_path / "secret"
    path.touch()
    path.chmod(mode)
    told = list(exposed({"token_file": path, "tls_key_file": path, "tls_certificate_file": path, "unix_socket": None}))
    assert [line.split(":")[0] for line in told] == (["token_file", "tls_key_file"] if is_told else [])
