"""The report shows what was computed, beside the paper's figures, and nothing else."""

import base64
import html.parser
import json

import jax
import pytest

from experiments import (
    published,
    report,
    report_scores,
    report_tables,
    reproduction,
    table2_convergence,
    table3_datasets,
)


class Reader(html.parser.HTMLParser):
    """Collects pictures, links and the text of cells; every tag must be closed."""

    VOID = ("meta", "img", "link")

    def __init__(self):
        super().__init__()
        self.open, self.pictures, self.ids, self.targets = [], [], set(), []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id"))
        if tag == "img":
            self.pictures.append(given["src"])
        if tag == "a":
            self.targets.append(given["href"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def folder(tmp_path):
    with jax.enable_x64(False):
        for module in (table2_convergence, table3_datasets):
            config = module.Config(quick=True, output=tmp_path)
            name = module.__name__.split(".")[-1]
            reproduction.record(config, module.run, name)
    (tmp_path / "table2_convergence_a.png").write_bytes(b"\x89PNG")
    return tmp_path


def test_one_page_holds_every_section_and_its_pictures(folder):
    page = (report.write(folder)[2]).read_text()
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert {f"#{name}" for name in report_tables.TABLES} == set(reader.targets)
    assert all(target[1:] in reader.ids for target in reader.targets)
    (picture,) = reader.pictures
    assert base64.b64decode(picture.split(",")[1]) == b"\x89PNG"
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<p>Not run.</p>") == len(report_tables.TABLES) - 2


def test_markdown_and_latex_hold_the_same_cells(folder):
    markdown, latex, _ = (path.read_text() for path in report.write(folder))
    assert "| S_XX PD, S PSD | converges; converges |" in markdown
    assert r"S\_XX PD, S PSD & converges; converges &" in latex
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 2
    assert "python -m experiments.table4_homophilic" in markdown
    assert "commit" in markdown


def test_scores_stand_beside_the_papers_and_are_judged_by_their_spread():
    stated = {"GCN": (81.9, 0.5), "RP": (82.7, 0.0), "SGC": (81.0, 0.5)}
    here = {"num_seeds": 20, "test_std": 0.3}
    found = {
        "GCN": here | {"test_mean": 82.3},
        "RP": here | {"test_mean": 82.7, "test_std": 0.0},
        "MLP": here | {"test_mean": 60.0},
    }
    column = {"published": stated, "found": found}
    (table,) = report_scores.scores({"result": {"datasets": {"cora": column}}})
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["GCN"] == ["82.30 ± 0.30", "20", "81.90 ± 0.50", "+0.40, within"]
    assert cells["RP"][-1] == "+0.00, within"
    assert cells["SGC"] == ["-", "-", "81.00 ± 0.50", "-"]
    assert cells["MLP"][-2:] == ["-", "-"]
    far = report_scores.verdict(80.0, 0.3, (81.9, 0.5))
    assert far == "-1.90, beyond"


def test_absent_sets_are_named_so_and_show_no_number_of_ours():
    column = {"published": {"RP": (66.01, 0.56)}, "found": published.ABSENT}
    (table,) = report_scores.scores({"result": {"datasets": {"roman-empire": column}}})
    assert table.note == published.ABSENT
    assert table.rows == [["RP", "-", "-", "66.01 ± 0.56", "-"]]
    panel = {"published": {}, "found": published.ABSENT}
    (table,) = report_tables.curves({"result": {"products": panel}})
    assert table.note == published.ABSENT


def test_cells_cannot_break_out_of_a_page(tmp_path):
    name = "table2_convergence"
    case = {
        "case": "<script>|x|</script>", "table": ["a", "b"], "found": ["a", "b"],
        "residual": 0.0, "predictions": 0.0, "growth": 0.0,
    }  # fmt: skip
    made = {
        "result": {"cases": [case]}, "settings": {}, "versions": {}, "commit": None,
        "device": "cpu", "seconds": 1.0,
    }  # fmt: skip
    (tmp_path / f"{name}.json").write_text(json.dumps(made))
    markdown, latex, page = (path.read_text() for path in report.write(tmp_path))
    assert "<script>" not in page
    assert r"<script>\|x\|</script>" in markdown
    assert r"\textbar{}x\textbar{}" in latex
