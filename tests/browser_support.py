"""What a test in a real browser needs: a JupyterLab of its own, a page, and waits that don't lie.

Guarantees that a JupyterLab started here uses no file of the user's (configuration, settings,
workspaces, history, ticks), listens on 127.0.0.1 alone and is gone afterwards with its kernels;
and that a page reaches no other host: such a request is refused and remembered.

The idle sign of JupyterLab shows before a kernel is connected, and "Run all" is lost then. So every
wait here asks the application itself.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

REPOSITORY = Path(__file__).resolve().parents[1]
ARTEFACTS = REPOSITORY / ".artefacts"

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
_START_TIMEOUT_S = 60.0


def missing_part() -> str | None:
    """Return what this machine lacks for a browser test, or None when it has all of it."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed: pip install 'durable-mini[browser]'"
    if _browser_path() is None:
        return f"no browser on this machine: none of {', '.join(_BROWSERS)} is on the PATH"
    return None


def _browser_path() -> str | None:
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


# ---- JupyterLab --------------------------------------------------------------------------------


@dataclass
class Lab:
    """A running JupyterLab: where it listens, what opens it, which folder it shows."""

    url: str
    token: str
    folder: Path

    def request(self, path: str, method: str = "GET") -> Any:
        """Call the server's own interface and return what its JSON says."""
        request = urllib.request.Request(
            f"{self.url}{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            body = response.read()
        return json.loads(body) if body else None


@contextmanager
def jupyter_lab(folder: Path, profile: Path) -> Iterator[Lab]:
    """Start a JupyterLab on `folder` with its whole configuration in `profile`; stop it at the end.

    Raises:
        RuntimeError: when it isn't up within a minute, with what it wrote.
    """
    _write_settings(profile)
    lab = Lab(f"http://127.0.0.1:{_free_port()}", secrets.token_hex(16), folder)
    log = profile / "jupyterlab.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _lab_command(lab), env=_environment(profile), stdout=output, stderr=output
        )
        try:
            _wait_until_up(lab, process, log)
            yield lab
        finally:
            _stop(lab, process)


def _lab_command(lab: Lab) -> list[str]:
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={urlsplit(lab.url).port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={lab.token}",
        f"--ServerApp.root_dir={lab.folder}",
        "--LabApp.expose_app_in_browser=True",
        *root,
    ]


def _environment(profile: Path) -> dict[str, str]:
    own = {
        name: str(profile / folder)
        for name, folder in {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
            "XDG_DATA_HOME": "share",  # a reader's ticks
        }.items()
    }
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **own, "PYTHONPATH": path}


def _write_settings(profile: Path) -> None:
    """Turn off the news, and windowing, which would leave cells off screen out of the page."""
    _write_json(
        profile / "config" / "labconfig" / "page_config.json",
        {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}},
    )
    tracker = "@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
    _write_json(profile / "settings" / tracker, {"windowingMode": "none"})


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_up(lab: Lab, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            lab.request("/api/status")
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _stop(lab: Lab, process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, which ends its kernels; insist when it doesn't."""
    try:
        lab.request("/api/shutdown", method="POST")
        process.wait(timeout=20)
    except (urllib.error.URLError, OSError, subprocess.TimeoutExpired):
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ---- the page ----------------------------------------------------------------------------------


@dataclass
class Browser:
    """A page in a real Chromium, and every request to another host that it made."""

    page: Any
    foreign: list[str] = field(default_factory=list)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a Chromium with one page that can reach 127.0.0.1 and nothing else."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=_browser_path(), args=_BROWSER_ARGUMENTS
        )
        context = chromium.new_context(
            viewport={"width": 1280, "height": 1000}, service_workers="block"
        )
        found = Browser(context.new_page())
        context.route("**/*", lambda route: _let_through(route, found.foreign))
        found.page.on("websocket", lambda socket: _note(socket.url, found.foreign))
        try:
            yield found
        finally:
            chromium.close()


def _let_through(route: Any, foreign: list[str]) -> None:
    if _note(route.request.url, foreign):
        route.abort()
    else:
        route.continue_()


def _note(url: str, foreign: list[str]) -> bool:
    """Remember a URL of another host; return whether it is one."""
    parts = urlsplit(url)
    is_foreign = parts.scheme not in {"data", "blob"} and parts.hostname != "127.0.0.1"
    if is_foreign:
        foreign.append(url)
    return is_foreign


# ---- the notebook ------------------------------------------------------------------------------


def open_notebook(page: Any, lab: Lab, name: str) -> None:
    """Open a notebook of the lab's folder, with a kernel of its own, until that answers.

    A page that shows JupyterLab already doesn't load it again: the notebook that it had open is
    closed without saving, and its kernel ends.
    """
    if page.url.startswith(lab.url):
        page.evaluate(
            """async path => {
                const app = window.jupyterapp, notebook = app.shell.currentWidget;
                const session = notebook.sessionContext;
                notebook.context.model.dirty = false;
                await session.shutdown();
                await app.commands.execute('application:close-all');
                await app.commands.execute('docmanager:open', { path });
            }""",
            name,
        )
    else:
        page.goto(f"{lab.url}/lab/tree/{quote(name)}?token={lab.token}&reset")
    page.wait_for_function(
        "path => window.jupyterapp?.shell.currentWidget?.context?.path === path",
        arg=name,
        timeout=60_000,
    )
    page.evaluate(
        """async () => {
            const notebook = window.jupyterapp.shell.currentWidget;
            await notebook.context.ready;
            await notebook.sessionContext.ready;
            await notebook.sessionContext.session.kernel.info;
        }"""
    )


def shows(page: Any, name: str) -> bool:
    """Whether this notebook is the one that the page has open."""
    path = page.evaluate("() => window.jupyterapp?.shell.currentWidget?.context?.path")
    return bool(path == name)


def run_all(page: Any, timeout_s: float = 120.0) -> None:
    """Run every cell and wait until each has run, or one has failed, and the kernel is idle."""
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    _wait_until_run(page, None, timeout_s)


def run_down_to(page: Any, source: str, timeout_s: float = 120.0) -> None:
    """Run the cells down to the first whose code holds `source`, and wait as `run_all` does."""
    place = page.evaluate(
        """async source => {
            const app = window.jupyterapp, notebook = app.shell.currentWidget;
            const place = [...notebook.context.model.cells].findIndex(
                c => c.type === 'code' && c.sharedModel.source.includes(source));
            notebook.content.activeCellIndex = place;
            app.commands.execute('notebook:run-all-above');
            app.commands.execute('notebook:run-cell');
            return place;
        }""",
        source,
    )
    _wait_until_run(page, place + 1, timeout_s)


def _wait_until_run(page: Any, cells: int | None, timeout_s: float) -> None:
    page.wait_for_function(
        """end => {
            const notebook = window.jupyterapp.shell.currentWidget;
            const cells = [...notebook.context.model.cells].slice(0, end ?? undefined)
                .filter(c => c.type === 'code');
            const failed = c => c.outputs.toJSON().some(o => o.output_type === 'error');
            const done = c => c.executionCount || c.sharedModel.source.trim() === '';
            return (cells.every(done) || cells.some(failed))
                && notebook.sessionContext.session.kernel.status === 'idle';
        }""",
        arg=cells,
        timeout=timeout_s * 1000,
    )


def errors_in_notebook(page: Any) -> list[str]:
    """Return the errors that cells ended in, and what widgets could not show."""
    found: list[str] = page.evaluate(
        """() => {
            const cells = [...window.jupyterapp.shell.currentWidget.context.model.cells];
            const outputs = cells.filter(c => c.type === 'code')
                .flatMap(c => c.outputs.toJSON());
            return outputs.filter(o => o.output_type === 'error')
                .map(o => `${o.ename}: ${o.evalue}`);
        }"""
    )
    broken = page.get_by_text("Error displaying widget").all_inner_texts()
    broken += page.get_by_text("Click to show javascript error").all_inner_texts()
    return [*found, *broken]


def keep_screenshot(page: Any, name: str, part: Any = None) -> Path:
    """Save what the page (or a part of it) shows under `.artefacts/`, where CI picks it up."""
    ARTEFACTS.mkdir(exist_ok=True)
    path = ARTEFACTS / f"{name}.png"
    if part is None:
        page.screenshot(path=str(path))
        return path
    height = part.bounding_box()["height"]  # JupyterLab scrolls inside: make room for all of it
    page.set_viewport_size({"width": 1280, "height": int(height) + 250})
    part.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    part.screenshot(path=str(path))
    return path


_IDLE = (
    "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'idle'"
)


def _wait_until_idle(page: Any) -> None:
    """A moment for the message to go out, and then as long as the answer takes."""
    page.wait_for_timeout(30)
    page.wait_for_function(_IDLE, timeout=60_000)


def move_every_widget(page: Any) -> tuple[int, int]:
    """Press one key on every slider and every button of the notebook; how many of each there are.

    By keyboard alone: what can't be reached like that fails here. A picture is computed again
    after each, which is waited for.
    """
    outputs = page.locator(".jp-OutputArea-output")
    sliders = outputs.locator(".noUi-handle:visible")
    buttons = outputs.locator("button.jupyter-button:visible")
    moved = sliders.count(), buttons.count()
    for place in range(moved[0]):
        sliders.nth(place).focus()
        page.keyboard.press("ArrowRight")
        _wait_until_idle(page)
    for place in range(moved[1]):
        button = buttons.nth(place)
        if button.is_visible() and button.is_enabled():  # the one before may have disabled it
            button.focus()
            page.keyboard.press("Enter")
            _wait_until_idle(page)
    return moved


def complaints_of_widgets(page: Any) -> list[str]:
    """What widgets say of themselves that is an error's name."""
    said: list[str] = page.locator("[role=status]").all_inner_texts()
    return [text for text in said if re.search(r"\b[A-Z]\w*(Error|Exception)\b", text)]
