"""Executes, normalises and checks notebooks: the one way in which outputs get into an `.ipynb`.

    python -m durable_mini.lab.notebooks build              # every notebook of the course
    python -m durable_mini.lab.notebooks build course/04_results.ipynb
    python -m durable_mini.lab.notebooks check

`build` runs a notebook top to bottom in a clean kernel, in the notebook's own folder, and writes it
back in one fixed form: readable cell ids, counts in sequence, no widget state, nothing that differs
from one run to the next. Building twice gives the same bytes as long as the cells print the same.
The file is replaced in one go; a cell that fails or a Ctrl-C leaves the old one as it was.

`check` executes nothing. It lists what a committed notebook must not hold.

Whether the outputs are still what the code prints is nbval's question, not this module's.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

Cell = Any  # a nbformat.NotebookNode of one cell
Output = Any  # a nbformat.NotebookNode of one output

CELL_TIMEOUT_S = 120.0
MAX_CODE_LINES = 25
MAX_PNG_BYTES = 200_000
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

# What JupyterLab and nbgrader act on. The rest of a cell's metadata is some tool's housekeeping.
KEPT_CELL_METADATA = frozenset(
    {
        "collapsed",
        "deletable",
        "editable",
        "jp-MarkdownHeadingCollapsed",
        "jupyter",
        "nbgrader",
        "tags",
    }
)
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

_READABLE_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RANDOM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$", re.MULTILINE)
_CODE_IN_PROSE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(<?([^)\s>]+)>?[^)]*\)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")
_MACHINE_PATH = re.compile(
    r"(?<![\w.~-])/(?:home|root|tmp|work|Users|private|var/folders)(?:/[\w.-]*|\b)|\b[A-Z]:\\\w*"
)
_REMOTE = re.compile(
    r"""<(?:img|script|iframe|link|video|source)\b[^>]*(?:src|href)\s*=\s*["']?(?:https?:)?//|@import\b"""
)
_IMG_WITHOUT_ALT = re.compile(r"""<img\b(?![^>]*\balt\s*=\s*["'][^"'])""")
_HASH_AT_A_LINE = re.compile(r"^[ \t>]*(#{1,6}[^#\s]\S*)", re.MULTILINE)
_NBVAL_OPT_OUT = re.compile(r"NBVAL_(?:SKIP|IGNORE_OUTPUT)")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that a committed notebook must not hold, and where it stands."""

    path: Path
    cell: int | None  # counted from 1 over all cells; None speaks of the whole notebook
    text: str

    def __str__(self) -> str:
        where = "" if self.cell is None else f", cell {self.cell}"
        return f"{self.path}{where}: {self.text}"


class NotebookFailedError(RuntimeError):
    """A notebook could not be executed to its end; its file was not touched."""


class NotANotebookError(ValueError):
    """A path that `build` or `check` was given is no notebook and no folder of notebooks."""


def read(path: Path) -> Any:
    """Read a notebook in the newest notebook format.

    Raises: NotANotebookError when the file is missing, is not JSON, or is not a notebook.
    """
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotANotebookError(f"{path}: there is no such file or folder") from None
    except (ValueError, nbformat.ValidationError) as error:
        raise NotANotebookError(f"{path}: is not a notebook ({_first_line(str(error))})") from None


def _parse(text: str) -> Any:
    """Read the text of a notebook, checked first: nbformat itself only logs what is wrong."""
    stored = json.loads(text)
    if not isinstance(stored, dict) or stored.get("nbformat") != 4:
        raise ValueError("no JSON object with nbformat 4")
    nbformat.validate(stored)
    return nbformat.reads(text, as_version=4)


def find(paths: Sequence[Path]) -> list[Path]:
    """List the notebooks under `paths` in order; a folder stands for all notebooks below it.

    Raises: NotANotebookError when a path doesn't exist or holds no notebook.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(
            notebook
            for notebook in path.rglob("*.ipynb")
            if ".ipynb_checkpoints" not in notebook.parts
        )
        if path.is_dir() and not inside:
            raise NotANotebookError(f"{path}: this folder holds no notebook")
        found += inside if path.is_dir() else [path]
    return found


# ---- build -------------------------------------------------------------------------------------


def build(path: Path, cell_timeout_s: float = CELL_TIMEOUT_S) -> bool:
    """Execute the notebook in a clean kernel and write it back in normal form.

    Args:
        path: the notebook; its folder is the kernel's working directory.
        cell_timeout_s: how long one cell may take.

    Returns: whether the file's bytes changed.

    Raises: NotebookFailedError naming notebook, cell and exception; NotANotebookError.

    Crash: the file holds either the old notebook or the new one, never a part.
    """
    notebook = read(path)
    execute(notebook, path, cell_timeout_s)
    text = normalise(notebook)
    if path.read_text(encoding="utf-8") == text:
        return False
    _replace(path, text)
    return True


def execute(notebook: Any, path: Path, cell_timeout_s: float = CELL_TIMEOUT_S) -> None:
    """Fill in the outputs of every code cell, in place, from a kernel that has run nothing else.

    Raises: NotebookFailedError at the first cell that raises (unless it is tagged
        `raises-exception`), takes too long or loses its kernel.
    """
    for cell in _code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=cell_timeout_s,
        coalesce_streams=True,  # how often a kernel flushes stdout is chance
        resources={"metadata": {"path": str(path.parent.resolve())}},
    )
    with tempfile.TemporaryDirectory() as nobodys_profile:
        environment = {**os.environ, "IPYTHONDIR": nobodys_profile}
        with client.setup_kernel(env=environment, stderr=subprocess.DEVNULL):
            for index, cell in enumerate(notebook.cells):
                _execute_cell(client, cell, index, path, cell_timeout_s)


def _execute_cell(
    client: NotebookClient, cell: Cell, index: int, path: Path, cell_timeout_s: float
) -> None:
    try:
        client.execute_cell(cell, index)
    except CellExecutionError as error:
        what = f"{error.ename}: {_first_line(error.evalue)}"
    except CellTimeoutError:
        what = f"took longer than {cell_timeout_s:g} s"
    except DeadKernelError:
        what = "the kernel died"
    else:
        return
    raise NotebookFailedError(
        f"{path}, cell {index + 1}, `{_first_line(cell.source)}`: {what}. The file is as it was. "
        "Next: run the notebook up to this cell, repair it, and build again."
    ) from None


def _replace(path: Path, text: str) -> None:
    """Put `text` in the place of the file in one step, keeping its permissions."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        new.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


# ---- normal form -------------------------------------------------------------------------------


def normalise(notebook: Any) -> str:
    """Give the text of the notebook in its one fixed form; `notebook` is changed to match.

    A cell keeps a readable id. A random one is replaced by the heading above it and a number, so
    that links survive an edit further up. A cell that was never run stays marked as such.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    _name_cells(notebook.cells)
    count = 0
    for cell in notebook.cells:
        cell.source = cell.source.rstrip("\n")
        cell.metadata = {
            key: value
            for key, value in cell.metadata.items()
            if key in KEPT_CELL_METADATA and value not in ([], {})
        }
        if cell.cell_type == "code":
            count += cell.execution_count is not None
            cell.execution_count = count if cell.execution_count is not None else None
            for output in cell.outputs:
                _normalise_output(output, cell.execution_count)
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def _name_cells(cells: Sequence[Cell]) -> None:
    """Give every cell an id that is readable, unique, and the same each time."""
    taken: set[str] = set()
    nameless = []
    section, number = "top", 0
    for cell in cells:
        heading = _HEADING.search(cell.source) if cell.cell_type == "markdown" else None
        if heading:
            section, number = _slug(heading[2]) or "top", 0
        number += 1
        name = cell.get("id", "")
        if _READABLE_ID.fullmatch(name) and not _RANDOM_ID.fullmatch(name) and name not in taken:
            taken.add(name)
        else:
            nameless.append((cell, section, number))
    for cell, section, number in nameless:
        names = (f"{section}-{n}" for n in itertools.count(number))
        cell.id = next(name for name in names if name not in taken)
        taken.add(cell.id)


def _slug(heading: str) -> str:
    """`The crash window, drawn` becomes `the-crash-window-drawn`; at most 40 characters."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = "-".join(words)[:40].strip("-")
    return slug if slug[:1].isalpha() else f"part-{slug}".strip("-")


def _normalise_output(output: Output, count: int | None) -> None:
    if output.output_type == "execute_result":
        output.execution_count = count
    if output.output_type == "error":
        # A traceback names this machine's folders. The error's own words are what the reader needs.
        output.traceback = [f"{output.ename}: {output.evalue}"]
    if "data" in output:
        _drop_widget_view(output.data)
        output.metadata = {
            mime: value for mime, value in output.metadata.items() if mime in output.data and value
        }


def _drop_widget_view(data: Any) -> None:
    """Leave the picture, drop the widget: its model id is random and its kernel is gone."""
    if WIDGET_VIEW not in data:
        return
    if "image/png" in data or "text/html" in data:
        del data[WIDGET_VIEW]
    else:
        data[WIDGET_VIEW]["model_id"] = ""


# ---- check -------------------------------------------------------------------------------------


def check(path: Path) -> list[Fault]:
    """List everything in a committed notebook that a reader or the next build would trip over."""
    notebook = read(path)
    faults = [Fault(path, None, text) for text in _notebook_faults(notebook, path)]
    for number, cell in enumerate(notebook.cells, 1):
        faults += [Fault(path, number, text) for text in _cell_faults(cell)]
        if cell.cell_type == "markdown":
            faults += [
                Fault(path, number, text) for text in _link_faults(cell.source, path, notebook)
            ]
    return faults


def _notebook_faults(notebook: Any, path: Path) -> Iterator[str]:
    if "widgets" in notebook.metadata:
        yield "holds widget state"
    text = path.read_text(encoding="utf-8")
    if normalise(_parse(text)) != text:
        yield "is not in normal form. Next: python -m durable_mini.lab.notebooks build"


def _cell_faults(cell: Cell) -> Iterator[str]:
    if not cell.source.strip():
        yield "is empty"
    yield from _text_faults("", cell.source)
    if cell.cell_type == "code":
        yield from _code_faults(cell)
        for output in cell.outputs:
            yield from _output_faults(output, cell)
    else:
        yield from _markdown_faults(_prose(cell.source))


def _markdown_faults(prose: str) -> Iterator[str]:
    if _IMG_WITHOUT_ALT.search(prose):
        yield "shows a picture without an alt text"
    if match := _HASH_AT_A_LINE.search(prose):
        yield f"begins a line with {match[1]}, which nbconvert takes for a heading"


def _code_faults(cell: Cell) -> Iterator[str]:
    if cell.source.strip() and cell.execution_count is None:
        yield "was never run, so nbval compares nothing"
    lines = len(cell.source.splitlines())
    if lines > MAX_CODE_LINES:
        yield f"has {lines} lines (at most {MAX_CODE_LINES})"
    tags = {str(tag) for tag in cell.metadata.get("tags", [])}
    if _NBVAL_OPT_OUT.search(cell.source) or tags & {"nbval-skip", "nbval-ignore-output"}:
        yield "tells nbval to look away"


def _output_faults(output: Output, cell: Cell) -> Iterator[str]:
    if output.output_type == "stream":
        if output.name == "stderr":
            yield f"has stderr in its output: {_first_line(output.text)}"
        yield from _text_faults("prints ", output.text)
    elif output.output_type == "error":
        if "raises-exception" not in cell.metadata.get("tags", []):
            yield f"ended in {output.ename} and isn't tagged raises-exception"
        yield from _text_faults("raises ", output.evalue)
    else:
        yield from _display_faults(output)


def _display_faults(output: Output) -> Iterator[str]:
    data = output.data
    if WIDGET_VIEW in data:
        yield "shows a widget that has no picture for a page without a kernel"
    if "image/svg+xml" in data or "<svg" in data.get("text/html", ""):
        yield "shows an SVG; nbval compares it and GitHub drops it: draw a PNG"
    if "image/png" in data:
        size = len(base64.b64decode(data["image/png"]))
        if size > MAX_PNG_BYTES:
            yield f"shows a PNG of {size:,} bytes (at most {MAX_PNG_BYTES:,})"
        if not output.metadata.get("image/png", {}).get("alt", "").strip():
            yield 'shows a picture without an alt text (output metadata {"image/png": {"alt": …}})'
    if _IMG_WITHOUT_ALT.search(data.get("text/html", "")):
        yield "shows a picture without an alt text"
    for mime, text in data.items():
        if mime.startswith("text/"):
            yield from _text_faults("shows ", text)


def _text_faults(verb: str, text: str) -> Iterator[str]:
    """Find what must stand neither in a cell nor in what it prints."""
    for pattern, what in (
        (_ADDRESS, "a memory address"),
        (_MACHINE_PATH, "a path of one machine"),
        (_REMOTE, "something that is fetched from the network"),
    ):
        if match := pattern.search(text):
            yield f"{verb or 'holds '}{what}: {match[0]}"


def _link_faults(source: str, path: Path, notebook: Any) -> Iterator[str]:
    for picture, words, target in _LINK.findall(_prose(source)):
        if picture and not words.strip():
            yield f"shows a picture without an alt text: {target}"
        if picture and re.match(r"(https?:)?//", target):
            yield f"shows a remote picture: {target}"
        if not re.match(r"[a-z]+:|//", target) and (broken := _broken(target, path, notebook)):
            yield broken


def _broken(target: str, path: Path, notebook: Any) -> str:
    """Say why a relative link leads nowhere; empty when it leads somewhere."""
    name, _, anchor = unquote(target).partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return f"links to {target}, which isn't there"
    if not anchor or file.suffix != ".ipynb":
        return ""
    cells = (read(file) if name else notebook).cells
    if anchor in _anchors(cells):
        return ""
    return f"links to {target}, but no heading there says that and no cell is called so"


def _anchors(cells: Sequence[Cell]) -> set[str]:
    """The names under which JupyterLab and nbconvert let a link reach a heading or a cell."""
    headings = (
        match[2]
        for cell in cells
        if cell.cell_type == "markdown"
        for match in _HEADING.finditer(cell.source)
    )
    named = {re.sub(r"[*`]", "", heading).replace(" ", "-") for heading in headings}
    return named | {f"cell-id={cell.id}" for cell in cells}


# ---- small things ------------------------------------------------------------------------------


def _code_cells(notebook: Any) -> Iterator[Cell]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _prose(source: str) -> str:
    """The markdown without its code, where `[a](b)` is no link."""
    return _CODE_IN_PROSE.sub("", source)


def _first_line(text: str) -> str:
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= 200 else line[:199] + "…"


# ---- the command -------------------------------------------------------------------------------


def default_paths() -> list[Path]:
    """The course of the clone that this package is run from, or else of the current folder."""
    beside = Path(__file__).resolve().parents[2] / "course"
    return [_shortest(beside if beside.is_dir() else Path("course"))]


def _shortest(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns: 0 done, 1 a cell failed or a fault was found, 2 wrong use."""
    options = _parser().parse_args(arguments)
    try:
        notebooks = find(options.paths or default_paths())
        if options.command == "check":
            return _report([fault for path in notebooks for fault in check(path)])
        return _build_all(notebooks, options.cell_timeout)
    except (NotANotebookError, OSError) as error:
        print(f"notebooks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nnotebooks: stopped; the notebook at work is as it was", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m durable_mini.lab.notebooks",
        description="Execute, normalise and check notebooks.",
        epilog="example: python -m durable_mini.lab.notebooks build course/04_results.ipynb",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="execute notebooks and write them back")
    building.add_argument(
        "--cell-timeout",
        type=float,
        default=CELL_TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long one cell may take (default {CELL_TIMEOUT_S:g})",
    )
    checking = commands.add_parser("check", help="list what a committed notebook must not hold")
    for command in (building, checking):
        command.add_argument(
            "paths", nargs="*", type=Path, help="notebooks or folders (default: all of course/)"
        )
    return parser


def _build_all(notebooks: Sequence[Path], cell_timeout_s: float) -> int:
    """Build each notebook, also after one that fails, and say how long it took."""
    failed = False
    faults: list[Fault] = []
    for path in notebooks:
        print(f"{path} … ", end="", flush=True)
        started_s = time.monotonic()
        try:
            outcome = "written" if build(path, cell_timeout_s) else "unchanged"
        except NotebookFailedError as error:
            failed = True
            print(f"failed after {time.monotonic() - started_s:.1f} s", flush=True)
            print(f"notebooks: {error}", file=sys.stderr)
        else:
            print(f"{outcome}, {time.monotonic() - started_s:.1f} s", flush=True)
            faults += check(path)
    return max(int(failed), _report(faults))


def _report(faults: Sequence[Fault]) -> int:
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
