"""The dashboard as JSON for Grafana. Its data source is a variable, as in Ray's dashboards."""

import json

from serve_app.dashboards.panels import Panel, panels

UID = "mantaDashboard"
PANEL_WIDTH, PANEL_HEIGHT, A_ROW = 12, 8, 2
DATA = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> str:
    """Ends with a newline."""
    document = {
        "uid": UID,
        "title": "Manta",
        "tags": ["manta"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_data_source(), _model()]},
        "annotations": {"list": []},
        "links": [],
        "panels": [_panel(number, panel) for number, panel in enumerate(panels())],
    }
    return json.dumps(document, indent=2) + "\n"


def _data_source() -> dict[str, object]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Data source",
        "refresh": 1,
    }


def _model() -> dict[str, object]:
    query = "label_values(ray_manta_model_state, model)"
    return {
        "name": "model",
        "type": "query",
        "label": "Model",
        "datasource": DATA,
        "definition": query,
        "query": {"query": query, "refId": "models"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panel(number: int, panel: Panel) -> dict[str, object]:
    row, column = divmod(number, A_ROW)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA,
        "gridPos": {
            "x": column * PANEL_WIDTH,
            "y": row * PANEL_HEIGHT,
            "w": PANEL_WIDTH,
            "h": PANEL_HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATA,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
