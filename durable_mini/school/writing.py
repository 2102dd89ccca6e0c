"""Text from strangers, made harmless where it goes: a CSV cell, a page, a file's name.

Guarantees: what a student typed is shown and never obeyed, neither by a spreadsheet nor by a
browser, a Markdown viewer or a terminal; a file is replaced in one step, and one that fails leaves
the old one and no part of a new one. Leaves to others: what is written (`reports`).
"""

from __future__ import annotations

import csv
import io
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

_RUNS = "=+-@\uff1d\uff0b\uff0d\uff20"  # a spreadsheet takes the wide forms too
_FORMULA = re.compile(rf"((?:^|[;|])[\s\"']*)(?=[{re.escape(_RUNS)}])")
_MARKDOWN = re.compile(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|^[#+-]|^\d+(?=[.)]))")
_FENCE = re.compile(r"`{3,}")
_LONGEST_NAME = 80
_DEVICE = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)  # what Windows takes them for
MAX_BYTES = 5_000_000


def visible(text: str) -> str:
    """The text with every character that would be obeyed instead of shown written out.

    >>> visible("a\\x1b[31m\\tb")
    'a\\\\x1b[31m    b'
    """
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text.replace("\r\n", "\n").replace("\t", "    ")
    )


def one_line(text: str, longest: int = 400) -> str:
    """The text in one line, cut at `longest` characters."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def cut(text: str, lines: int = 20, longest: int = 2_000) -> str:
    """The beginning of what was printed, with a word about the rest."""
    kept = "\n".join(text[:longest].split("\n")[:lines])
    left = len(text) - len(kept)
    return visible(kept) + (f"\n… and {left:,} more characters" if left > 0 else "")


# ---- CSV ---------------------------------------------------------------------------------------


def harmless(cell: str) -> str:
    """A cell that a spreadsheet shows instead of running, whatever it takes for a separator.

    >>> harmless("=1+1"), harmless("a; @x"), harmless("8 = 2 * 4")
    ("'=1+1", "a; '@x", '8 = 2 * 4')
    """
    return _FORMULA.sub(r"\1'", one_line(cell))


def number(value: float) -> str:
    """Points as people write them: 3, not 3.0.

    >>> number(3.0), number(2.5), number(1 / 3)
    ('3', '2.5', '0.3333')
    """
    return f"{value:.4f}".rstrip("0").rstrip(".")


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str | float]]) -> str:
    """A CSV text: numbers as they are, texts harmless, every line ended by a newline."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(harmless, header))
    for row in rows:
        writer.writerow(harmless(cell) if isinstance(cell, str) else number(cell) for cell in row)
    return out.getvalue()


# ---- Markdown, names, files --------------------------------------------------------------------


def markdown(text: str) -> str:
    """A line of Markdown that shows the text as it is.

    >>> markdown("<b> *x*")
    '&lt;b&gt; \\\\*x\\\\*'
    """
    line = one_line(text, 1_000).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", line)


def fenced(text: str) -> str:
    """A block of Markdown that shows the text as it was printed, its own fences too."""
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def file_name(text: str) -> str:
    """A name for a file that every system takes and no shell trips over.

    >>> file_name('ada/03 "keys" <script>.ipynb')
    'ada-03-keys-script'
    """
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9_]+", "-", ascii_only.removesuffix(".ipynb")).strip("-")
    words = words[:_LONGEST_NAME] or "submission"
    return f"{words}-" if _DEVICE.fullmatch(words) else words


def replace_file(path: Path, text: str, mode: int = 0o600) -> None:
    """Put the text in the place of the file.

    Crash: the file holds what it held before, or all that is new.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".grading-")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        new.chmod(mode)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def read_text(path: Path, wrong: type[ValueError]) -> str:
    """The text of a file that a person named, without a byte-order mark.

    Raises: `wrong` when it is too large or no text; OSError when it can't be read.
    """
    with path.open("rb") as file:
        stored = file.read(MAX_BYTES + 1)
    if len(stored) > MAX_BYTES:
        raise wrong(
            f"{path}: larger than {MAX_BYTES // 1_000_000} MB. Next: name a table of marks."
        )
    try:
        return stored.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "save it as CSV in UTF-8"
        raise wrong(f"{path}: not UTF-8 at byte {error.start}. Next: {hint}.") from None
