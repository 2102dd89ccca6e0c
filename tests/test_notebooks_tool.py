"""The notebook tool: same bytes twice, the old file kept on failure, each hygiene fault found."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from durable_mini.lab import notebooks

PICTURE_WITH_WIDGET = """\
import base64, io
import ipywidgets
from IPython.display import display
from matplotlib.figure import Figure
figure = Figure(figsize=(2, 1))
figure.subplots().plot([0, 1])
drawn = io.BytesIO()
figure.savefig(drawn, format="png")
slider = ipywidgets.IntSlider(description="steps")
bundle = slider._repr_mimebundle_()
bundle["image/png"] = base64.b64encode(drawn.getvalue()).decode()
bundle["text/plain"] = "a slider"
display(bundle, raw=True, metadata={"image/png": {"alt": "a rising line"}})"""


def write(path: Path, *cells: tuple[str, str]) -> Path:
    """Save a notebook as an author would first have it: random ids, nothing executed."""
    make = {"md": new_markdown_cell, "code": new_code_cell}
    nbformat.write(new_notebook(cells=[make[kind](text) for kind, text in cells]), path)
    return path


def faults_of(tmp_path: Path, cell: Any) -> list[str]:
    """What `check` says of one cell in a notebook that is otherwise in order."""
    if cell.cell_type == "code" and cell.execution_count is None:
        cell.execution_count = 1
    path = tmp_path / "one.ipynb"
    path.write_text(notebooks.normalise(new_notebook(cells=[cell])), encoding="utf-8")
    return [fault.text for fault in notebooks.check(path)]


def code(source: str = "1", *outputs: Any, **metadata: Any) -> Any:
    return new_code_cell(source, outputs=list(outputs), metadata=metadata)


def shown(**data: Any) -> Any:
    mimes = {key.replace("_", "/"): value for key, value in data.items()}
    return new_output("display_data", data=mimes)


# ---- build -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_build_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.ipynb",
        ("md", "# A picture"),
        ("code", PICTURE_WITH_WIDGET),
        ("md", "## And more"),
        (
            "code",
            "import os\nfor i in range(200): print(i, flush=True)\nos.getcwd().split('/')[-1]",
        ),
    )

    assert notebooks.build(path)
    first = path.read_bytes()
    assert not notebooks.build(path)
    path.write_text(json.dumps(json.loads(first)), encoding="utf-8")
    assert notebooks.build(path)

    assert path.read_bytes() == first
    assert notebooks.check(path) == []
    cells = json.loads(first)["cells"]
    assert [cell["id"] for cell in cells] == [
        "a-picture-1",
        "a-picture-2",
        "and-more-1",
        "and-more-2",
    ]
    assert sorted(cells[1]["outputs"][0]["data"]) == ["image/png", "text/plain"]
    assert len(cells[3]["outputs"]) == 2
    assert cells[3]["outputs"][1]["data"]["text/plain"] == [repr(tmp_path.name)]


@pytest.mark.slow
def test_build_result_passes_nbval_although_the_widget_view_was_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", ("code", PICTURE_WITH_WIDGET))
    notebooks.build(path)
    nbval = ["--nbval", "--nbval-current-env", "-c", os.devnull, "--rootdir", str(tmp_path)]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *nbval, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_build_names_the_failing_cell_and_leaves_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path / "a.ipynb", ("md", "# T"), ("code", "x = 1"), ("code", "# why\nprint(x / 0)")
    )
    before = path.read_bytes()

    assert notebooks.main(["build", str(path)]) == 1

    said = capsys.readouterr()
    assert f"{path}, cell 3, `# why`: ZeroDivisionError: division by zero." in said.err
    assert said.err.count("\n") == 1
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "what"),
    [("while True: pass", "took longer than 1 s"), ("import os; os._exit(3)", "the kernel died")],
)
def test_build_ends_with_a_cell_that_never_would(tmp_path: Path, source: str, what: str) -> None:
    path = write(tmp_path / "a.ipynb", ("code", source))

    with pytest.raises(notebooks.NotebookFailedError, match=what):
        notebooks.build(path, cell_timeout_s=1.0)


@pytest.mark.slow
def test_build_keeps_an_expected_error_without_its_traceback(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    cell = new_code_cell("raise ValueError('as told')", metadata={"tags": ["raises-exception"]})
    nbformat.write(new_notebook(cells=[cell]), path)

    notebooks.build(path)

    output = json.loads(path.read_text())["cells"][0]["outputs"][0]
    assert output["traceback"] == ["ValueError: as told"]
    assert notebooks.check(path) == []


@pytest.mark.slow
def test_build_stopped_by_ctrl_c_leaves_the_file_and_no_kernel(tmp_path: Path) -> None:
    source = "import os, time\nopen('kernel', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    path = write(tmp_path / "a.ipynb", ("code", source))
    before = path.read_bytes()
    command = [sys.executable, "-m", "durable_mini.lab.notebooks", "build", str(path)]

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "kernel").exists() and (tmp_path / "kernel").read_text() != "")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 130
    assert said.strip() == "notebooks: stopped; the notebook at work is as it was"
    assert path.read_bytes() == before
    kernel = int((tmp_path / "kernel").read_text())
    wait_for(lambda: not is_alive(kernel))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- normal form -------------------------------------------------------------------------------


def test_normalise_is_at_rest_after_one_application() -> None:
    cell = code("print(1)\n", new_output("stream", text="1\n"), execution={"iopub": "12:00"})
    once = notebooks.normalise(new_notebook(cells=[cell], metadata={"widgets": {}, "toc": 1}))

    assert notebooks.normalise(nbformat.reads(once, as_version=4)) == once
    assert once.endswith("}\n")
    assert json.loads(once)["metadata"] == notebooks.NOTEBOOK_METADATA
    assert json.loads(once)["cells"][0]["metadata"] == {}


@pytest.mark.filterwarnings("ignore:Non-unique cell id")
def test_normalise_keeps_readable_ids_and_names_the_rest_by_their_heading() -> None:
    cells = [
        new_markdown_cell("# Die Lücke & *more*", id="0a1b2c3d"),
        new_markdown_cell("text", id="kept-as-it-is"),
        new_markdown_cell("text", id="kept-as-it-is"),
        new_markdown_cell("## 12 facts", id="6f1de3f5-6d3c-4ed2-8f5e-0c6a4f7c2b11"),
    ]
    notebooks.normalise(new_notebook(cells=cells))

    assert [cell.id for cell in cells] == [
        "die-lucke-more-1",
        "kept-as-it-is",
        "die-lucke-more-3",
        "part-12-facts-1",
    ]


def test_normalise_counts_in_sequence_and_leaves_an_unrun_cell_unrun() -> None:
    cells = [code(), code(), code()]
    cells[0].execution_count, cells[2].execution_count = 4, 9
    notebooks.normalise(new_notebook(cells=cells))

    assert [cell.execution_count for cell in cells] == [1, None, 2]


# ---- check -------------------------------------------------------------------------------------

PNG = base64.b64encode(b"\x89PNG").decode()
LARGE_PNG = base64.b64encode(bytes(notebooks.MAX_PNG_BYTES + 1)).decode()
STDERR = new_output("stream", name="stderr", text="careful\n")
WIDGET = new_output("display_data", data={notebooks.WIDGET_VIEW: {"model_id": "ab"}})


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        (code("1", STDERR), "has stderr"),
        (code("1", shown(text_plain="<object at 0x7f00aa11>")), "memory address: 0x7f00aa11"),
        (code("open('/home/ada/x')"), "path of one machine: /home/ada"),
        (code("1", new_output("stream", text="in /tmp/abc\n")), "path of one machine: /tmp/abc"),
        (new_markdown_cell(r"look in C:\Users"), r"path of one machine: C:\Users"),
        (code("1", WIDGET), "widget that has no picture"),
        (code("1", shown(**{"image_svg+xml": "<svg/>"})), "shows an SVG"),
        (code("1", shown(text_html="<p><svg></svg></p>")), "shows an SVG"),
        (code("1", shown(image_png=LARGE_PNG)), "PNG of 200,001 bytes"),
        (code("1", shown(image_png=PNG)), "without an alt text"),
        (code("1", shown(text_html='<img src="a.png">')), "without an alt text"),
        (code("1", shown(text_html="<script src='//x.org/a.js'>")), "fetched from the network"),
        (new_markdown_cell("![](a.png)"), "without an alt text"),
        (new_markdown_cell("![seen](https://x.org/a.png)"), "remote picture"),
        (new_markdown_cell("[next](no_such.ipynb)"), "no_such.ipynb, which isn't there"),
        (new_markdown_cell("# A\n[up](#B)"), "no heading there"),
        (new_markdown_cell("# A\n[up](#cell-id=no-such)"), "no cell is called so"),
        (new_markdown_cell("- see [issue\n  #818](#A)"), "nbconvert takes for a heading"),
        (new_markdown_cell(" "), "is empty"),
        (code("\n".join("1" * 26)), "has 26 lines"),
        (code("1  # NBVAL_SKIP"), "nbval to look away"),
        (code("1", tags=["nbval-ignore-output"]), "nbval to look away"),
        (code("1", new_output("error", ename="E", evalue="no")), "ended in E"),
    ],
)
def test_check_finds(tmp_path: Path, cell: Any, fault: str) -> None:
    found = faults_of(tmp_path, cell)

    assert any(fault in text for text in found), found


def test_check_finds_nothing_in_a_cell_that_is_in_order(tmp_path: Path) -> None:
    links = "# The top\n[here](#The-top) `[not](a link)` <https://example.org> either/tmp or 0x10"

    assert faults_of(tmp_path, new_markdown_cell(links)) == []
    assert faults_of(tmp_path, new_markdown_cell("[here](#cell-id=this)", id="this")) == []
    assert faults_of(tmp_path, code("x = 1", new_output("stream", text="1\n"))) == []


def test_check_finds_an_unrun_cell_widget_state_and_a_hand_save(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", ("code", "1"))
    notebook = notebooks.read(path)
    notebook.metadata.widgets = {}
    nbformat.write(notebook, path)

    found = [str(fault) for fault in notebooks.check(path)]

    assert f"{path}: holds widget state" in found
    assert f"{path}, cell 1: was never run, so nbval compares nothing" in found
    assert any("is not in normal form" in fault for fault in found)


@pytest.mark.parametrize("content", [None, "{", "{}", "not json", '{"cells": 3, "nbformat": 4}'])
def test_check_refuses_what_is_no_notebook_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    path = tmp_path / "a.ipynb"
    if content is not None:
        path.write_text(content)

    assert notebooks.main(["check", str(path)]) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"notebooks: {path}: ")
    assert said.count("\n") == 1
