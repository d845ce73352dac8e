# SPDX-License-Identifier: Apache-2.0
"""`reput debug bundle`: planted secrets are in no part of it, its size is bounded, and broken parts do not end it."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from cli.commands.debug import parts
from cli.commands.debug.parts import files_text, made, tail_text
from cli.commands.debug.redact import MASK, redacted
from libs.runtime.watch.metrics_server import MetricsServer
from tests.support.reput_up import run_here

SECRET = "s3cr3t-Planted.42"
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\nAAAA\n-----END EC PRIVATE KEY-----"
PLACES = [
    f"Authorization: Bearer {SECRET}",
    f"authorization=Basic {SECRET}",
    f'{{"otlp_token": "{SECRET}", "x": 1}}',
    f"{{'secret_key': '{SECRET}'}}",
    f"password={SECRET}&user=me",
    f"etcd_password: {SECRET}",
    f"REPUT_CLIENT_TOKEN={SECRET}",
    f"api_token is {SECRET}; next",
    f"http://admin:{SECRET}@host:4317/x",
    f"key\n{PEM}\nend",
    PEM.partition("\n-----END")[0],
]


@pytest.mark.parametrize("text", PLACES)
def test_unknown_secrets_are_found_by_their_surroundings(text: str) -> None:
    """A secret that nobody has named is masked in each usual form."""
    assert SECRET not in redacted(text)
    assert MASK in redacted(text)


def test_known_secrets_are_masked_everywhere() -> None:
    """A known secret is masked without surroundings, also inside of a word, and a longer secret first."""
    assert redacted(f"x{SECRET}y {SECRET}-longer", [SECRET, f"{SECRET}-longer", "x"]) == f"x{MASK}y {MASK}"


def test_other_text_stays() -> None:
    """Ordinary lines, paths of files with secrets, and empty values are no secrets."""
    text = 'metrics_token_file=/etc/reput/t disk 5 % used {"token_file": "/etc/t", "token": ""} tokens: 3'
    assert redacted(text) == text


@pytest.fixture
def url() -> Iterator[str]:
    """A service whose settings and metrics have a secret in them."""
    registry = CollectorRegistry()
    Gauge("planted", "planted", ["where"], registry=registry).labels(f"bearer {SECRET}").set(1)
    row = {"setting": "etcd_token", "value": SECRET, "source": f"flag --etcd-token={SECRET}", "is_live": False}
    found = {"settings": [row, {"setting": "otlp_endpoint", "value": f"http://a:{SECRET}@b"}], "waiting": []}
    server = MetricsServer("127.0.0.1", 0, registry, settings=lambda: found)
    yield f"http://127.0.0.1:{server.server_port}"
    server.close()


def contents(file: Path) -> dict[str, str]:
    """The parts of a bundle."""
    with tarfile.open(file) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and ".." not in member.name for member in members)
        assert {member.mode for member in members} == {0o600}
        texts = {}
        for member in members:
            entry = archive.extractfile(member)
            assert entry is not None
            texts[member.name.partition("/")[2]] = entry.read().decode()
        return texts


def test_no_planted_secret_is_in_a_bundle(tmp_path: Path, url: str) -> None:
    """Secrets of log lines, pages, the user's token and token files that settings name are in no part."""
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    token.chmod(0o600)
    data, log, file = tmp_path / "data", tmp_path / "a.log", tmp_path / "b.tar.gz"
    data.mkdir()
    (data / "messages").write_text(SECRET)
    log.write_text("\n".join(["an ordinary line", f"bare {SECRET} in a line", *PLACES]))
    result = run_here(
        "--token-file", str(token), "debug", "bundle", "--output", str(file), "--data-dir", str(data),
        "--log", str(log), "--metrics", f"janitor={url}", "--metrics-token-file", str(token), "--json",
    )  # fmt: skip
    assert result.code == 0, result
    texts = contents(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [name for name, text in texts.items() if SECRET in text]
    assert SECRET not in result.output + result.errors
    assert "an ordinary line" in texts["logs/1-a.log"]
    assert "planted" in texts["janitor/metrics.txt"]
    assert "'messages'" in texts["files.tsv"]
    [row] = result.rows
    assert {"commitlog/metrics.txt", "status.json"} - {"status.json"} <= set(row["failed"])
    assert texts["commitlog/metrics.txt"].startswith("error: UNAVAILABLE: http://127.0.0.1:7201/metrics: ")
    assert json.loads(texts["versions.json"])["packages"]
    again = run_here("debug", "bundle", "--output", str(file))
    assert (again.code, "exists already" in again.errors) == (1, True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.log", "b.tar.gz", "data", "token"]


def test_tokens_of_subjects_and_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of a rights file's subjects, and the user's own token, are known as secrets."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state/reput").mkdir(parents=True)
    (tmp_path / "state/reput/token").write_text("token-of-the-user\n")
    (tmp_path / "shop.token").write_text(f"{SECRET}\n")
    rights = tmp_path / "rights.toml"
    rights.write_text("[[subjects]]\nname = 'shop'\ntoken_file = 'shop.token'\n[[subjects]]\ntoken_file = 7\n")
    settings = {"settings": [{"setting": "rights_file", "value": str(rights)}]}
    texts = {"commitlog/settings.json": json.dumps(settings)}
    assert parts.secrets_of(texts, "") == {"token-of-the-user", SECRET}
    for wrong in ("[[", "subjects = 3\n", "subjects = [3]\n"):
        rights.write_text(wrong)
        assert parts.secrets_of(texts, "") == {"token-of-the-user"}


def test_tokens_in_files_that_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of a token file that a service's settings name are known secrets."""
    file = tmp_path / "tokens"
    file.write_text(f"first-token {SECRET}\n")
    rows = [{"setting": "token_file", "value": str(file)}, {"setting": "metrics_token_file", "value": "/none"}]
    texts = {"janitor/settings.json": json.dumps({"settings": rows}), "indexer/settings.json": "error: away"}
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert parts.secrets_of(texts, "") == {"first-token", SECRET}


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log gives its last whole lines, a directory its first files, and a part its first characters."""
    log = tmp_path / "log"
    with log.open("wb") as big:
        big.write(b"old line\n" * 500_000 + b"last \xff line\n")
    text = tail_text(log)
    assert len(text) <= parts.LOG_SIZE_BYTES_MAX + 10
    assert text.startswith("old line\n")
    assert text.endswith("last \\xff line\n")
    monkeypatch.setattr(parts, "FILE_COUNT_MAX", 5)
    for number in range(9):
        (tmp_path / f"f{number}\n").touch()
    lines = files_text(tmp_path).splitlines()
    assert len(lines) == 7
    assert lines[-1] == "# cut after 5 files"
    assert len(made(lambda: "x" * (parts.PART_SIZE_BYTES_MAX + 1))) < parts.PART_SIZE_BYTES_MAX + 100


def test_a_broken_part_is_its_reason() -> None:
    """A part that fails in any way is a line, and the bundle goes on."""

    def broken() -> str:
        raise RuntimeError("no idea")

    assert made(broken) == "error: RuntimeError: no idea\n"
    assert made(lambda: tail_text(Path("/none"))).startswith("error: [Errno 2]")


@pytest.mark.parametrize("text", ["janitor", "janitor=", "nobody=http://x", "=http://x"])
def test_wrong_urls(text: str) -> None:
    """A wrong URL is a usage error."""
    result = run_here("debug", "bundle", "--metrics", text)
    assert (result.code, "SERVICE=URL" in result.errors) == (2, True)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link in the data directory is not followed."""
    (tmp_path / "folder").symlink_to("/etc")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    lines = files_text(tmp_path).splitlines()
    assert lines[0].startswith(f"# {tmp_path}: ")
    [row] = lines[2:]
    assert row.endswith("'passwd'")
    assert row.split("\t")[0] == str((tmp_path / "passwd").lstat().st_size)
