# SPDX-License-Identifier: Apache-2.0
"""Configuration: the source that wins, the refused values, and a remedy in each refusal."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta

from libs.importance import Advanced, Basic
from libs.runtime.config import MASK, expectation, fields_of, load
from libs.runtime.errors import ConfigError
from libs.runtime.settings import PeerConfig
from services.indexer.bootstrap import Settings as IndexerSettings


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A group described by sentences."""

    data_dir: Basic[Path]
    """Where the data
    are."""

    size_bytes: Advanced[Annotated[int, Meta(ge=10, le=20)]] = 10
    """How much."""

    mode: Advanced[Literal["fast", "safe"]] = "fast"
    """How."""

    is_eager: Advanced[bool] = False
    """Whether at once."""

    def __post_init__(self) -> None:
        if self.is_eager and self.mode == "safe":
            raise ValueError("is_eager contradicts mode = safe")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """A group with checks of its own."""

    ratio: Advanced[Annotated[float, Meta(ge=0)]] = 0.5
    """Share."""
    peer: Basic[str | None] = None
    """Other."""
    peer_token: Basic[str] = ""
    """Secret."""
    port: Basic[Annotated[int, Meta(le=65_535)]]
    """Where."""

    def check(self) -> None:
        """Agree or raise."""
        if self.peer == "self":
            raise ValueError("peer can't be self")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Both groups in a section."""

    engine: Engine = Engine(data_dir=Path("data"))
    shared: Shared = field(default_factory=lambda: Shared(port=7101))


def loaded(
    tmp_path: Path,
    toml: str | bytes | None = None,
    environment: dict[str, str] | None = None,
    flags: dict[str, object] | None = None,
    cls: type = Settings,
) -> Settings:
    file = None
    if toml is not None:
        file = tmp_path / "reput.toml"
        file.write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    return load(cls, section="commitlog", file=file, environment=environment or {}, flags=flags or {}).value


def test_defaults_come_from_the_classes_and_from_the_group(tmp_path: Path) -> None:
    """Without any source every default counts, the defaults of a group's instance before its class."""
    assert loaded(tmp_path) == Settings()


def test_later_sources_win(tmp_path: Path) -> None:
    """Defaults < file < environment < flags; a flag that was not given counts for nothing."""
    toml = '[commitlog]\nsize_bytes = 11\nport = 1\nmode = "safe"\n[indexer]\nanything = 1\n'
    environment = {"REPUT_COMMITLOG_SIZE_BYTES": "12", "REPUT_COMMITLOG_PORT": "2", "REPUT_INDEXER_X": "y", "HOME": "/"}
    result = load(
        Settings,
        section="commitlog",
        file=_write(tmp_path, toml),
        environment=environment,
        flags={"size_bytes": "13", "port": None},
    )
    assert (result.value.engine.size_bytes, result.value.shared.port, result.value.engine.mode) == (13, 2, "safe")
    sources = {setting.field.name: setting.source for setting in result.settings}
    assert sources == {
        "data_dir": "default",
        "size_bytes": "flag --size-bytes",
        "mode": f"{tmp_path}/reput.toml: [commitlog] mode",
        "is_eager": "default",
        "ratio": "default",
        "peer": "default",
        "peer_token": "default",
        "port": "environment REPUT_COMMITLOG_PORT",
    }


def _write(tmp_path: Path, toml: str) -> Path:
    (tmp_path / "reput.toml").write_text(toml)
    return tmp_path / "reput.toml"


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("DATA_DIR", "/x/y", Path("/x/y")),
        ("SIZE_BYTES", "20", 20),
        ("IS_EAGER", "true", True),
        ("IS_EAGER", "0", False),
        ("RATIO", "0.25", 0.25),
        ("PEER", "host", "host"),
    ],
)
def test_text_becomes_the_type_of_the_field(tmp_path: Path, variable: str, text: str, value: object) -> None:
    """The environment and flags know only text; numbers, booleans and paths are read from it."""
    name = variable.lower()
    for result in (
        loaded(tmp_path, environment={f"REPUT_COMMITLOG_{variable}": text}),
        loaded(tmp_path, flags={name: text}),
    ):
        assert value in (getattr(result.engine, name, None), getattr(result.shared, name, None))


@pytest.mark.parametrize(
    ("toml", "environment", "flags", "words"),
    [
        ("[commitlog]\nsize_bytes = 9", {}, {}, ["size_bytes is 9", "[commitlog] size_bytes", "from 10 to 20"]),
        ('[commitlog]\nsize_bytes = "11"', {}, {}, ["size_bytes is '11'", "an integer from 10 to 20"]),
        ("[commitlog]\nis_eager = 1", {}, {}, ["is_eager is 1", "true or false"]),
        ('[commitlog]\nmode = "slow"', {}, {}, ["mode is 'slow'", "one of fast, safe"]),
        ("[commitlog]\nsize_byte = 9", {}, {}, ["unknown key size_byte in [commitlog]", "did you mean size_bytes?"]),
        ("[comitlog]\n", {}, {}, ["[comitlog]", "did you mean commitlog?"]),
        ("size_bytes = 11", {}, {}, ["unknown table or key [size_bytes]"]),
        ("commitlog = 1", {}, {}, ["commitlog must be a table"]),
        ("[commitlog\n", {}, {}, ["reput.toml: not a TOML file", "line 1"]),
        (b"\xff", {}, {}, ["reput.toml: not a TOML file"]),
        (
            None,
            {"REPUT_COMMITLOG_SIZE_BYTES": "21"},
            {},
            ["size_bytes is '21'", "environment REPUT_COMMITLOG_SIZE_BYTES", "from 10 to 20"],
        ),
        (
            None,
            {"REPUT_COMMITLOG_SIZE": "11"},
            {},
            ["REPUT_COMMITLOG_SIZE;", "did you mean REPUT_COMMITLOG_SIZE_BYTES?"],
        ),
        (None, {"REPUT_COMMITLOG_PORT": "tcp://10.0.0.1:7101"}, {}, ["REPUT_COMMITLOG_PORT", "enableServiceLinks"]),
        (None, {"REPUT_COMMITLOG_SERVICE_HOST": "10.0.0.1"}, {}, ["SERVICE_HOST", "enableServiceLinks"]),
        (None, {}, {"data_dir": ""}, ["data_dir is ''", "flag --data-dir", "a path"]),
        (None, {}, {"ratio": "-1"}, ["ratio is '-1'", "a number of at least 0"]),
        (None, {}, {"port": "65536"}, ["port is '65536'", "an integer of at most 65535"]),
        (None, {}, {"prot": "1"}, ["unknown flag --prot", "did you mean --port?"]),
        (None, {}, {"is_eager": "true", "mode": "safe"}, ["commitlog: is_eager contradicts mode"]),
        (None, {}, {"peer": "self"}, ["commitlog: peer can't be self"]),
    ],
)
def test_what_is_wrong_is_named_in_one_line(
    tmp_path: Path, toml: str | None, environment: dict[str, str], flags: dict[str, object], words: list[str]
) -> None:
    """Key, value, limit and source are in the text; a typo gets the nearest known name."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, toml, environment, flags)
    text = str(caught.value)
    assert [word for word in words if word not in text] == []
    assert "\n" not in text


def test_a_required_setting_names_its_three_sources(tmp_path: Path) -> None:
    """The error of a missing required setting names its three sources."""
    with pytest.raises(ConfigError, match="data_dir is not set: give --data-dir, REPUT_COMMITLOG_DATA_DIR or"):
        loaded(tmp_path, cls=Engine)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A given file that is missing raises ConfigError with its name."""
    with pytest.raises(ConfigError, match=r"missing\.toml: No such file"):
        load(Settings, section="commitlog", file=tmp_path / "missing.toml", environment={}, flags={})


def test_secrets_are_masked(tmp_path: Path) -> None:
    """A token is printed neither by `config show` nor in an error."""
    result = load(Settings, section="commitlog", environment={}, flags={"peer_token": "sesame"})
    shown = {setting.field.name: setting.shown_value for setting in result.settings}
    assert shown["peer_token"] == MASK
    assert shown["size_bytes"] == "10"
    with pytest.raises(ConfigError) as caught:
        load(Settings, section="commitlog", environment={}, flags={"peer_token": 1234})
    assert "1234" not in str(caught.value)


def test_fields_carry_their_sentences() -> None:
    """Documentation finds every setting with default, bounds and a line of prose."""
    fields = {field.name: field for field in fields_of(Settings)}
    assert fields["data_dir"].description == "Where the data are."
    assert (fields["ratio"].description, fields["ratio"].default) == ("Share.", 0.5)
    assert fields["port"].default == 7101
    assert {field.name: field.is_required for field in fields_of(Engine)}["data_dir"]


def test_a_field_without_a_sentence_is_a_mistake() -> None:
    """A setting without a sentence is refused, because it can't be documented."""

    @dataclass(frozen=True)
    class Bare:
        """No sentences."""

        size: Basic[int] = 1

    (field,) = fields_of(Bare)
    with pytest.raises(AssertionError, match=r"Bare\.size has no sentence"):
        _ = field.description


def test_a_field_without_a_mark_is_a_mistake() -> None:
    """A setting that is marked neither basic nor advanced is refused, also with bounds."""

    @dataclass(frozen=True)
    class Unmarked:
        """No marks."""

        size: Annotated[int, Meta(ge=1)] = 1
        """How much."""

    with pytest.raises(AssertionError, match=r"Unmarked\.size is marked neither Basic nor Advanced"):
        fields_of(Unmarked)


def test_a_mark_leaves_the_type_as_it_is() -> None:
    """Pages and schemas find the mark beside the type, and the type as it is without the mark."""
    fields = {field.name: field for field in fields_of(Settings)}
    assert {name for name, field in fields.items() if field.is_basic} == {"data_dir", "peer", "peer_token", "port"}
    assert fields["data_dir"].type is Path
    assert fields["size_bytes"].type == Annotated[int, Meta(ge=10, le=20)]


def test_two_groups_can_not_share_a_name() -> None:
    """A key that means two things is a programmer's mistake."""

    @dataclass(frozen=True)
    class Twice:
        """Two groups of the same class."""

        one: Shared = Shared(port=1)
        two: Shared = Shared(port=2)

    with pytest.raises(AssertionError, match="same name"):
        load(Twice, section="commitlog", environment={}, flags={})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Path | None, "a path or nothing"),
        (Annotated[int, Meta(ge=1)], "an integer of at least 1"),
        (Annotated[str, Meta(min_length=1)], "text"),
        (Literal["a", "b"], "one of a, b"),
    ],
)
def test_types_in_words(kind: object, words: str) -> None:
    """The words of a message for the type of a value."""
    assert expectation(kind) == words


@dataclass(frozen=True, kw_only=True)
class WithPeers:
    """Two groups of the same kind."""

    commitlog: PeerConfig = field(default_factory=lambda: PeerConfig(target="a:1"))
    indexer: PeerConfig = field(default_factory=lambda: PeerConfig(target="b:2", timeout_ms=7))


def test_groups_of_one_kind_have_names_of_their_own() -> None:
    """The name of the field is the prefix of its settings, also in refusals."""
    flags = {"commitlog_target": "c:3", "indexer_tls_ca_file": "ca.pem"}
    value = load(WithPeers, section="janitor", environment={}, flags=flags).value
    assert value.commitlog == PeerConfig(target="c:3")
    assert value.indexer == PeerConfig(target="b:2", timeout_ms=7, tls_ca_file=Path("ca.pem"))
    with pytest.raises(ConfigError, match="indexer_tls_key_file and tls_certificate_file need each other"):
        load(WithPeers, section="janitor", environment={}, flags={"indexer_tls_certificate_file": "certificate.pem"})


@pytest.mark.parametrize(
    "target", ["127.0.0.1:7101", "log:1", "[::1]:7101", "unix:/run/log", "dns:///log:7101", "a:1,b:2", "a:1,", ""]
)
def test_an_address_is_taken(target: str) -> None:
    """An address in each form of a channel is accepted."""
    assert PeerConfig(target=target).target == target


@pytest.mark.parametrize(
    "target", ["127.0.0.1", "log", "log:", "log:0", "log:65536", "log:x", "::1", "a:1,b", "log:1/x", " "]
)
def test_an_address_without_a_port_is_refused(target: str) -> None:
    """An address without a port is refused.

    A service would otherwise look for its peers at port 443.
    """
    with pytest.raises(ValueError, match=r"must be host:port, for example 127\.0\.0\.1:7101"):
        PeerConfig(target=target)


def test_the_refusal_names_the_setting() -> None:
    """The refusal has the name of the setting as an operator writes it."""
    with pytest.raises(ConfigError, match=r"commitlog_target is '127\.0\.0\.1': '127\.0\.0\.1' must be host:port"):
        load(IndexerSettings, section="indexer", environment={"REPUT_INDEXER_COMMITLOG_TARGET": "127.0.0.1"}, flags={})
    with pytest.raises(ConfigError, match="otlp_endpoint is 'nowhere'"):
        load(IndexerSettings, section="indexer", environment={"REPUT_INDEXER_OTLP_ENDPOINT": "nowhere"}, flags={})
