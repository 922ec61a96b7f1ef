"""A reader's way in: JupyterLab in a real Chromium, "Run all", and sliders moved by key and mouse.

The kernels work as on another computer than the one that stored the outputs: with other code for
the processor, and sums cut into other parts. No claim may be contradicted there.

It needs Chromium on the path. Where ``BROWSER=required`` is set, as in the continuous checks,
a missing one is a failure.
"""

import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from course.hand_out import without_outputs
from helpers import diagrams
from helpers.diagrams.kit import WIDTH
from helpers.exercises import quiz
from helpers.tables import table

sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

ROOT = Path(__file__).parent.parent
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SCREENSHOTS = ROOT / "build" / "screenshots"
ANOTHER_COMPUTER = {
    "ATEN_CPU_CAPABILITY": "default",
    "OMP_NUM_THREADS": "2",
    # Two kernels at once on two cores: threads that wait by spinning would hold each other up.
    "OMP_WAIT_POLICY": "passive",
}
SETTINGS = {
    # All cells stay in the page, so that the test can look at each of them.
    "notebook-extension/tracker": '{"windowingMode": "none"}',
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
}
MINUTES_20 = 1_200_000  # in milliseconds, of one notebook on a slow machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab over copies of the notebooks without outputs; its address."""
    home = tmp_path_factory.mktemp("lab")
    notebooks = home / "notebooks"
    notebooks.mkdir()
    for path in PATHS:
        nbformat.write(without_outputs(nbformat.read(path, as_version=4)), notebooks / path.name)
    shutil.copy(ROOT / "notebooks" / "glossary.md", notebooks)
    for name, values in SETTINGS.items():
        settings = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        settings.parent.mkdir(parents=True)
        settings.write_text(values)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = (
        *(sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser"),
        *(f"--port={port}", "--IdentityProvider.token=", f"--notebook-dir={notebooks}"),
    )
    environment = os.environ | ANOTHER_COMPUTER
    environment |= {
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    log = (home / "log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}/lab"
    try:
        wait_for(address, server)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def wait_for(address, server):
    for _ in range(120):
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(address):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"JupyterLab does not answer at {address}")


def run_all(chromium, lab, path):
    """Open a notebook, choose Run, Run All Cells, and return the page when the kernel is done."""
    page = chromium.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{lab}/workspaces/{path.stem}/tree/{path.name}?reset", timeout=60_000)
    wait_until_idle(page)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator("[data-command='runmenu:run-all'] .lm-Menu-itemLabel").click()
    last = page.locator(".jp-CodeCell .jp-InputPrompt").last
    sync_api.expect(last).not_to_have_text("[ ]:", timeout=60_000)
    waiting = page.locator(".jp-InputPrompt", has_text="[*]")
    sync_api.expect(waiting).to_have_count(0, timeout=MINUTES_20)
    return page


def wait_until_idle(page):
    """Wait until the status bar says that there is a kernel, and that it has nothing to do."""
    page.get_by_text("| Idle").wait_for(timeout=60_000)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_run_all_and_every_widget(chromium, lab, path):
    page = run_all(chromium, lab, path)
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").all_inner_texts() == []
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").all_inner_texts() == []
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt").all_inner_texts()
    assert prompts == [f"[{number}]:" for number in range(1, len(prompts) + 1)]
    outputs = page.locator(".jp-OutputArea-output", has=page.locator(".widget-slider"))
    assert outputs.count() == len(widget_cells(path)) > 0
    for number, output in enumerate(outputs.all(), start=1):
        output.scroll_into_view_if_needed()
        move_every_slider(page, output)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        output.screenshot(path=SCREENSHOTS / f"{path.stem}-{number}.png")
        # ipywidgets gives the handle of a slider no name of its own; the label stands beside it.
        assert violations(page, ".widget-vbox", without=["aria-input-field-name"]) == []
    page.close()


def widget_cells(path):
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if re.search(r"^widgets\.", cell.source, re.MULTILINE)]


def move_every_slider(page, output):
    """Each slider by key and by mouse: one figure always, and the same one for the same place."""
    changed = []
    for slider in output.locator(".widget-slider").all():
        handle, readout = slider.locator(".noUi-handle"), slider.locator(".widget-readout")
        at_start = readout.inner_text()
        handle.focus()
        page.keyboard.press("Home")
        first = settled(output)
        page.keyboard.press("End")
        last = settled(output, after=first)
        assert (first.pictures, last.pictures) == (1, 1)
        for words in (slider.locator(".widget-label"), readout):
            assert words.evaluate("it => it.scrollWidth <= it.clientWidth"), words.inner_text()
        changed.append(last != first)
        box = slider.locator(".noUi-target").bounding_box()
        page.mouse.click(box["x"] + 1, box["y"] + box["height"] / 2)
        assert settled(output, after=last) == first
        walk_to(page, slider, at_start)
    # One may make no difference at the place of the others: nothing to drop from 800 ÷ 8.
    assert sum(changed) >= 0.6 * len(changed) > 0


class Seen(NamedTuple):
    """What a reader sees of a widget, apart from its sliders."""

    pictures: int
    picture: str
    words: str


def settled(output, after=None):
    """Return what is seen once it has changed and then stays for a moment."""
    before, deadline = None, time.monotonic() + 8
    while time.monotonic() < deadline:
        time.sleep(0.3)
        wait_until_idle(output.page)
        images, words = output.locator("img"), output.locator(".widget-html-content")
        now = Seen(images.count(), content(images.last), words.first.inner_text())
        if now == before and now != after:
            break
        before = now
    return before


def content(image):
    """Return the bytes of a picture, since each move gives it another address."""
    return image.evaluate(
        "async image => { const bytes = await (await fetch(image.src)).arrayBuffer();"
        " return Array.from(new Uint8Array(bytes)).join() }"
    )


def violations(page, selector, without=()):
    """Return what axe finds in one part of the page, in a line each."""
    rules = {rule: {"enabled": False} for rule in without}
    found = axe.Axe().run(page, context={"include": [[selector]]}, options={"rules": rules})
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


def test_planner_shows_the_numbers_of_the_plan(chromium, lab):
    """810 examples in batches of 8: 102 updates, and 101 if the last batch is dropped."""
    path = next(path for path in PATHS if path.stem.startswith("02"))
    page = run_all(chromium, lab, path)
    output = page.locator(".jp-OutputArea-output", has=page.locator(".widget-slider")).first
    output.scroll_into_view_if_needed()
    choose(page, output, "examples", "810")
    choose(page, output, "epochs", "1")
    choose(page, output, "batch size", "8")
    words = output.locator(".widget-html-content").first
    sync_api.expect(words).to_contain_text("102")
    choose(page, output, "drop last", "True")
    sync_api.expect(words).to_contain_text("101")
    page.close()


@pytest.mark.parametrize("term", ["batch", "gradient noise"])
def test_a_word_leads_to_its_entry_without_a_network(chromium, lab, term):
    context = chromium.new_context(viewport={"width": 1400, "height": 500})
    context.route(lambda url: "127.0.0.1" not in url, lambda route: route.abort())
    page = context.new_page()
    page.goto(f"{lab}/workspaces/words/tree/{PATHS[0].name}?reset", timeout=60_000)
    wait_until_idle(page)
    anchor = term.replace(" ", "-")
    page.locator(f"a[href*='glossary.md'][href$='#{anchor}']").click()
    entry = page.locator(".jp-MarkdownViewer h2", has_text=re.compile(f"^{term}"))
    sync_api.expect(entry).to_be_in_viewport(timeout=60_000)
    context.close()


def choose(page, output, label, value):
    walk_to(page, output.locator(".widget-slider", has_text=label).first, value)


def walk_to(page, slider, value):
    """Walk with the arrow keys until the readout of a slider shows the value."""
    slider.locator(".noUi-handle").focus()
    page.keyboard.press("Home")
    for _ in range(40):
        if slider.locator(".widget-readout").inner_text() == value:
            return
        page.keyboard.press("ArrowRight")
        time.sleep(0.2)
    pytest.fail(f"the slider never shows {value!r}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["README", "notebooks/02_steps_and_epochs", "notebooks/glossary", "course/README"]
)
def test_site_is_accessible(chromium, book, name, scheme):
    page = chromium.new_context(color_scheme=scheme).new_page()
    page.goto((book / f"{name}.html").as_uri())
    assert violations(page, "article") == []
    page.context.close()


def test_site_finds_a_word(chromium, book):
    page = chromium.new_page()
    page.goto(f"{(book / 'search.html').as_uri()}?q=sharpness")
    found = page.locator("#search-results li a")
    found.first.wait_for(timeout=30_000)
    assert "Linear scaling" in " ".join(found.all_inner_texts())
    page.close()


PLACES = """svg => [...svg.querySelectorAll("text")].map(word => {
    const box = word.getBBox();
    return {text: word.textContent, left: box.x, top: box.y + 3,
            right: box.x + box.width, bottom: box.y + box.height - 3};
})"""


@pytest.mark.parametrize("font", ["Liberation Sans", "DejaVu Sans"])  # a narrow and a wide one
def test_words_of_diagrams_stay_on_the_card_and_off_each_other(chromium, font):
    page = chromium.new_page(viewport={"width": 800, "height": 700})
    for draw in (getattr(diagrams, name) for name in diagrams.__all__ if name != "Diagram"):
        page.set_content(draw().svg.replace('font-family="', f"font-family=\"'{font}', "))
        svg = page.locator("svg")
        words, height = svg.evaluate(PLACES), svg.evaluate("svg => svg.viewBox.baseVal.height")
        for word in words:
            assert 6 <= word["left"] <= word["right"] <= WIDTH - 6, word
            assert 3 <= word["top"] <= word["bottom"] <= height - 3, word
        for one, other in itertools.combinations(words, 2):
            beside = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"], (
                one,
                other,
            )
    page.close()


@pytest.mark.parametrize("background", ["white", "#111"])
def test_diagrams_are_accessible_on_light_and_dark(chromium, background):
    page = chromium.new_page(viewport={"width": 400, "height": 700})
    shown = [getattr(diagrams, name)() for name in diagrams.__all__ if name != "Diagram"]
    body = "".join(picture._repr_html_() + picture.svg for picture in shown)
    page.set_content(f'<main style="background: {background}">{body}</main>')
    assert violations(page, "main") == []
    widths = page.locator("img, svg").evaluate_all("all => all.map(it => it.clientWidth)")
    assert max(widths) <= 400
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_question_is_answered_by_key_without_a_kernel(chromium, scheme):
    context = chromium.new_context(color_scheme=scheme)
    page = context.new_page()
    paper = "<style>:root { color-scheme: light dark }</style>"
    made = table([("a", 1.5), ("b", float("nan"))], ("run", "loss (nats)"), "Two runs.")
    body = f"{made._repr_html_()}{quiz(1)._repr_html_()}"
    page.set_content(f'<html lang="en">{paper}<main>{body}</main></html>')
    assert violations(page, "main") == []
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    first = page.locator("details").first
    assert first.get_attribute("open") is not None
    sync_api.expect(first).to_contain_text(quiz(1).questions[0].answers[0].why)
    assert page.locator("details[open]").count() == 1
    assert violations(page, "main") == []
    context.close()
