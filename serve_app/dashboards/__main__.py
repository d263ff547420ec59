"""Writes the dashboard's file anew from the table of its panels."""

from pathlib import Path

from serve_app.dashboards.grafana import dashboard

FILE = Path(__file__).parent / "manta.json"

if __name__ == "__main__":
    FILE.write_text(dashboard())
