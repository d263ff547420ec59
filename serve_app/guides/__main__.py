"""Writes the tables of the guides anew: `python -m serve_app.guides`."""

from serve_app.guides.tables import FOLDER, TABLES, page

if __name__ == "__main__":
    for name in TABLES:
        (FOLDER / name).write_text(page(name))
