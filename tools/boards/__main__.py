# SPDX-License-Identifier: Apache-2.0
"""Writes the boards of Grafana to deploy/observability/boards, and what the Helm chart needs of them and of the rules.

Run it as `python -m tools.boards`; with `--check` it writes nothing and fails when a file is out of date. Helm reads
only files below the chart, so the chart has copies of the boards and of the rules of deploy/prometheus.
"""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel as TimeseriesPanel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

from tools.boards.description import BOARDS
from tools.boards.panels import Board, Panel
from tools.written import write_or_check

ROOT = Path(__file__).resolve().parents[2]
BOARDS_DIR = ROOT / "deploy/observability/boards"
RULES_DIR = ROOT / "deploy/prometheus"
CHART_DIR = ROOT / "deploy/k8s/reput/files"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
STORE_METRIC = "reput_build_info"
PANEL_HEIGHT, PANEL_SPAN = 8, 12


def main() -> int:
    """Write or check the files. Returns the exit code, which is 1 when a check fails."""
    wanted = files()
    surplus = {path for folder in (BOARDS_DIR, CHART_DIR) for path in folder.rglob("*.*")} - wanted.keys()
    return write_or_check(wanted, surplus)


def files() -> dict[Path, str]:
    """Return the text of each file."""
    found = {}
    for board in BOARDS:
        text = json_of(board)
        found[BOARDS_DIR / f"reput-{board.name}.json"] = text
        found[CHART_DIR / "boards" / f"reput-{board.name}.json"] = text
    for rules in sorted(RULES_DIR.glob("*.yaml")):
        found[CHART_DIR / "rules" / rules.name] = rules.read_text(encoding="utf-8")
    return found


def json_of(board: Board) -> str:
    """Return a board as Grafana reads it."""
    made = (
        Dashboard(board.title)
        .uid(f"reput-{board.name}")
        .description(board.sentence)
        .tags(["reput"])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(_variable("namespace", STORE_METRIC, "store"))
    )
    for name, metric in board.variables:
        made = made.with_variable(_variable(name, metric, name))
    for panel in board.panels:
        made = made.with_panel(_panel(panel))
    document = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _variable(name: str, metric: str, label: str) -> QueryVariable:
    """Return a variable with the values of a label. `All` also matches series without the label."""
    return (
        QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .include_all(True)
        .multi(True)
        .all_value(".*")
    )


def _panel(panel: Panel) -> TimeseriesPanel:
    made = (
        TimeseriesPanel()
        .title(panel.title)
        .description(panel.sentence)
        .unit(panel.unit)
        .min(0)
        .height(PANEL_HEIGHT)
        .span(PANEL_SPAN)
        .datasource(SOURCE)
        .fill_opacity(10)
        .legend(
            VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
        )
    )
    for number, query in enumerate(panel.queries):
        made = made.with_target(
            Dataquery().expr(query.text).legend_format(query.legend).ref_id(chr(ord("A") + number)).range()
        )
    return made


if __name__ == "__main__":
    sys.exit(main())
