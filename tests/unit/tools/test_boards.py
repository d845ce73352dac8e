# SPDX-License-Identifier: Apache-2.0
"""The boards: each metric is one that docs/metrics.md lists, and the files are what the description makes."""

import json
import re

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from libs.runtime.config import SECTIONS
from tools.boards.__main__ import BOARDS_DIR, ROOT, files
from tools.boards.description import BOARDS
from tools.boards.panels import Board, Query

ROW = re.compile(r"^\| `([a-z_<>]+)` \| (counter|gauge|histogram) \| ([^|]*) \|", re.MULTILINE)
PATTERN = re.compile(r'__name__=~"([^"]+)"')
NAME = re.compile(r"\b(?:reput|process)_[a-z0-9_]+")
LABEL = re.compile(r'([a-z_]+)=~?"')
OF_PROMETHEUS = {"namespace", "job", "instance", "le", "__name__"}


def listed() -> dict[str, set[str]]:
    """Return the labels of each metric that docs/metrics.md lists, with the series of histograms."""
    found: dict[str, set[str]] = {}
    for name, kind, labels in ROW.findall((ROOT / "docs/metrics.md").read_text()):
        names = [name.replace("<service>", section) for section in SECTIONS] if "<" in name else [name]
        ends = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        for one in names:
            for end in ends:
                found[one + end] = set(re.findall(r"`([a-z_]+)`", labels))
    return found


LISTED = listed()
QUERIES = [
    pytest.param(query, id=f"{board.name}: {panel.title}: {query.legend}")
    for board in BOARDS
    for panel in board.panels
    for query in panel.queries
]


@pytest.mark.parametrize("query", QUERIES)
def test_each_metric_is_listed(query: Query) -> None:
    """Each name and each label of a query is in docs/metrics.md, and a pattern of names has matches."""
    patterns = PATTERN.findall(query.text)
    meant = [name for pattern in patterns for name in LISTED if re.fullmatch(pattern, name)]
    assert all(any(re.fullmatch(pattern, name) for name in LISTED) for pattern in patterns)
    named = NAME.findall(PATTERN.sub("", re.sub(r'"[^"]*"', '""', query.text)))
    assert named or meant
    assert set(named) <= LISTED.keys()
    labels = OF_PROMETHEUS.union(*(LISTED[name] for name in (*named, *meant)))
    assert set(LABEL.findall(query.text)) <= labels
    assert set(re.findall(r"{{(\w+)}}", query.legend)) <= labels
    assert query.text.count('namespace=~"$namespace"') == len(re.findall(r"\{", query.text)), "each selects the store"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_board_is_complete(board: Board) -> None:
    """Each panel has a sentence and queries, titles are unique, and its file is Grafana's JSON with all of them."""
    assert all(panel.sentence.endswith(".") and panel.queries for panel in board.panels)
    assert len({panel.title for panel in board.panels}) == len(board.panels)
    assert {metric for _, metric in board.variables} <= LISTED.keys()
    made = json.loads((BOARDS_DIR / f"reput-{board.name}.json").read_text())
    assert made["uid"] == f"reput-{board.name}"
    texts = [target["expr"] for panel in made["panels"] for target in panel["targets"]]
    assert texts == [query.text for panel in board.panels for query in panel.queries]
    assert [variable["name"] for variable in made["templating"]["list"]][:2] == ["datasource", "namespace"]


def test_files_are_up_to_date() -> None:
    """All files of the boards and the chart's copies of the rules are what `make gen` writes."""
    assert all(path.read_text() == text for path, text in files().items())


def without_nulls(part: object) -> object:
    """Return a part of a document without members that are null."""
    if isinstance(part, dict):
        return {name: without_nulls(value) for name, value in part.items() if value is not None}
    return [without_nulls(value) for value in part] if isinstance(part, list) else part


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_grafanas_schema_has_each_member(board: Board) -> None:
    """Grafana's own library reads a board and loses nothing of it."""
    register_default_plugins()
    document = json.loads((BOARDS_DIR / f"reput-{board.name}.json").read_text())
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    assert without_nulls(again) == without_nulls(document)
