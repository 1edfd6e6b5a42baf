"""Show notebooks on the site with their outputs, which are computed while it is built.

The pages of `NOTEBOOKS` end with the cells of theirs. No output is kept in the repository. A
picture is described by ``alt`` in the metadata of its cell.
"""

import os
import re
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient

HOMES = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")
"""Where Jupyter writes: not to the home folder."""
DOCS = Path(__file__).parents[1]
NOTEBOOKS = {"tutorial.md": "notebooks/analyst.ipynb", "extending.md": "notebooks/researcher.ipynb"}


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page, with the cells of its notebook below if it has one."""
    if page.file.src_uri not in NOTEBOOKS:
        return markdown
    cells = executed(DOCS / NOTEBOOKS[page.file.src_uri]).cells
    return "\n\n".join([markdown, *(text for cell in cells for text in shown(cell))])


def executed(path: Path) -> Any:
    """Return a notebook after its cells have run, in an empty folder."""
    notebook = nbformat.read(path, as_version=4)
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        patch.dict(os.environ, dict.fromkeys(HOMES, folder)),
    ):
        options = {"timeout": 600, "extra_arguments": ["--log-level=ERROR"]}
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options).execute()
    return notebook


def shown(cell: Any) -> list[str]:
    """Return a cell as pieces of Markdown: its source, and its outputs."""
    if cell.cell_type == "markdown":
        return [re.sub(r"^#", "##", re.sub(r"^# .*\n", "", cell.source), flags=re.M)]
    pictures = cell.metadata.get("alt", "")
    source = cell.source.removeprefix("%matplotlib inline\n").rstrip(";")
    return [f"```python\n{source}\n```", *(output(each, pictures) for each in cell.outputs)]


def output(told: Any, alt: str) -> str:
    """Return an output as Markdown: a table, a picture, or text."""
    data = told.get("data", {"text/plain": told.get("text", "")})
    if "image/png" in data:
        picture = "".join(data["image/png"].split())
        return f'<img class="output" alt="{escape(alt)}" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.S)
        html = re.sub(r"<table[^>]*>", "<table>", html)
        return "\n".join(line for line in html.splitlines() if line.strip())
    return f"```text\n{data['text/plain'].rstrip()}\n```"
