"""The report's page as a reader sees it, in a headless browser, wide and narrow."""

import html
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from experiments.report import documents

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
    "--enable-logging=stderr", "--dump-dom",
)  # fmt: skip

# The page stands in a frame, since a window cannot be as narrow as a telephone.
PROBE = """<!doctype html><meta charset="utf-8"><body>
<iframe id="page" style="width:{width}px;height:900px;border:0" srcdoc="{page}">
</iframe>
<script>
addEventListener("load", () => {{
  const view = document.getElementById("page").contentWindow, page = view.document;
  const texts = [...page.querySelectorAll("p, td, th, li, h1, h2, h3")];
  const inside = node => node.closest(".wide") !== null;
  const found = {{
    width: view.innerWidth,
    overflow: page.documentElement.scrollWidth - view.innerWidth,
    images: [...page.images].map(image => [image.naturalWidth, image.clientWidth]),
    smallest: Math.min(...texts.map(
      node => parseFloat(view.getComputedStyle(node).fontSize))),
    cut: texts.filter(node => !inside(node) && node.scrollWidth > node.clientWidth + 1)
      .map(node => node.textContent),
  }};
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
}});
</script></body>"""


@pytest.fixture(scope="module")
def browser():
    """Return a Chromium; without it tests skip on a user's machine, not in CI."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    message = f"no browser: none of {', '.join(NAMES)}"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(message)
    pytest.skip(message)


def look(browser, page, width, folder):
    """Return what the probe measures, and what the console said."""
    file = folder / "probe.html"
    file.write_text(PROBE.format(width=width, page=html.escape(page)))
    command = [browser, *FLAGS, f"--user-data-dir={folder / 'profile'}", file.as_uri()]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    )
    text = done.stdout.split('<pre id="found">')[1].split("</pre>")[0]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(text)), console


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_readable_without_errors(browser, width, tmp_path):
    sections = documents.sections(RESULTS)
    found, console = look(browser, documents.page(sections), width, tmp_path)
    assert console == []
    assert found["width"] == width
    assert found["overflow"] <= 0
    assert found["cut"] == []
    assert found["smallest"] >= 12
    num_figures = sum(len(section.figures) for section in sections)
    assert len(found["images"]) == num_figures > 0
    for natural, shown in found["images"]:
        assert natural > 0
        assert 0 < shown <= width


def test_the_probe_sees_what_is_wrong(browser, tmp_path):
    page = (
        '<!doctype html><meta name="viewport" content="width=device-width"><body>'
        '<img src="data:image/png;base64,xx"><p style="font-size:5px">small</p>'
        '<p style="width:900px">wide</p><script>nothing()</script></body>'
    )
    found, console = look(browser, page, 400, tmp_path)
    assert any("nothing is not defined" in line for line in console)
    assert found["images"][0][0] == 0
    assert found["smallest"] == 5
    assert found["overflow"] > 0
