"""The report shows what was computed, beside the paper's figures, and nothing else."""

import base64
import html.parser
import json
from pathlib import Path

import jax
import pytest

from experiments import published, runner
from experiments.paper import table2_convergence, table3_datasets
from experiments.report import (
    documents,
    record_tables,
    results_table,
    score_tables,
)
from gnnrp.studies import presets

ROOT = Path(__file__).parents[2]


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
            runner.record(config, module.run, name)
    path = tmp_path / "table2_convergence.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"figures": ["table2_convergence_a.png"]}))
    (tmp_path / "table2_convergence_a.png").write_bytes(b"\x89PNG")
    (tmp_path / "table2_convergence_of_another_run.png").write_bytes(b"\x89PNG")
    return tmp_path


def homophilic(datasets):
    """Return a record of Table 4."""
    return {"result": {"datasets": datasets}, "settings": {"num_epochs": 300}}


def test_one_page_holds_every_section_and_its_pictures(folder):
    page = (documents.write(folder)[2]).read_text()
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert {f"#{name}" for name in record_tables.TABLES} == set(reader.targets)
    assert all(target[1:] in reader.ids for target in reader.targets)
    (picture,) = reader.pictures
    assert base64.b64decode(picture.split(",")[1]) == b"\x89PNG"
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<p>Not run.</p>") == len(record_tables.TABLES) - 2


def test_markdown_and_latex_hold_the_same_cells(folder):
    markdown, latex, _ = (path.read_text() for path in documents.write(folder))
    assert "| S_XX PD, S PSD | converges; converges |" in markdown
    assert r"S\_XX PD, S PSD & converges; converges &" in latex
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 2
    assert "python -m experiments.paper.table4_homophilic" in markdown
    assert "commit" in markdown


def test_a_figure_has_a_paragraph_and_a_caption(folder):
    markdown, _, page = (path.read_text() for path in documents.write(folder))
    caption = "Convergence table (App. B.2): a"
    image = f"![{caption}](table2_convergence_a.png)"
    assert f"\n\n{image}\n\n*{caption}*\n\n" in markdown
    assert f"<figcaption>{caption}</figcaption></figure>" in page


def test_scores_stand_beside_the_papers_and_are_judged_by_their_spread():
    stated = {"GCN": (81.9, 0.5), "RP": (82.7, 0.0), "SGC": (81.0, 0.5)}
    here = {"num_seeds": 20, "test_std": 0.3}
    found = {
        "GCN": here | {"test_mean": 82.3},
        "RP": here | {"test_mean": 82.7, "test_std": 0.0},
        "MLP": here | {"test_mean": 60.0},
    }
    column = {"published": stated, "found": found}
    (table,) = score_tables.scores(homophilic({"cora": column}))
    cells = {row[0]: row[1:] for row in table.rows}
    assert cells["GCN"] == ["82.30 ± 0.30", "20", "81.90 ± 0.50", "+0.40, within"]
    assert cells["RP"][-1] == "+0.00, within"
    assert cells["SGC"] == ["-", "-", "81.00 ± 0.50", "-"]
    assert cells["MLP"][-2:] == ["-", "-"]
    far = score_tables.verdict(here | {"test_mean": 80.0}, (81.9, 0.5))
    assert far == "-1.90, beyond"
    none = {"test_mean": None, "test_std": None}
    assert score_tables.verdict(none, (81.9, 0.5)) == "-"
    exact = {"test_mean": 82.66, "test_std": 0.0}
    assert score_tables.verdict(exact, (82.7, 0.0)) == "-0.04, within"
    assert score_tables.verdict(exact, (82.72, 0.0)) == "-0.06, beyond"


def test_the_provenance_of_the_settings_of_photo_is_of_its_records():
    scan, splits = (
        json.loads((ROOT / f"experiments/results/{name}_photo.json").read_text())
        for name in ("settings_scan", "random_splits")
    )
    text, settings = score_tables.PROVENANCE["photo"], presets.SETTINGS["photo"]
    assert presets.RPSettings(**splits["settings"]) == settings
    names = ("power", "gamma", "row_normalize")
    kernels, matches = (
        {tuple(cell[name] for name in names): cell for cell in scan[part]}
        for part in ("cells", "matches")
    )
    assert f"of {len(kernels)} combinations of K, γ and row normalization, " in text
    assert f"{len(matches)} give it" in text
    ours = matches.pop(tuple(getattr(settings, name) for name in names))
    (other,) = matches.values()
    assert (other["power"], other["gamma"], other["num_steps"]) == (1, 0.01, 1000)
    assert other == scan["best by validation"]
    assert f"score, {other['val']:.2f} against {ours['val']:.2f}" in text
    test = splits["test"]
    assert (
        f"near the best of {splits['splits']} random splits, whose mean is "
        f"{test['mean']:.2f} and largest score {test['max']:.2f}"
    ) in text


def test_random_splits_are_a_column_beside_the_published_one():
    row = {"num_seeds": 1, "test_mean": 92.0, "test_std": 0.0}
    drawn = {"num_seeds": 10, "test_mean": 91.0, "test_std": 0.5}
    column = {
        "published": {"RP": (92.0, 0.0), "GCN": (92.25, 0.61)},
        "found": {"RP": row, "GCN": row},
        "random splits": {"RP": drawn},
    }
    (table,) = score_tables.scores(homophilic({"computers": column}))
    assert table.header[2:5] == ["runs", "ten random splits", "test, paper"]
    cells = {line[0]: line[1:] for line in table.rows}
    assert cells["RP"] == ["92.00", "1", "91.00 ± 0.50", "92.00", "+0.00, within"]
    assert cells["GCN"][2] == "-"
    assert "the one random split of the paper" in table.note
    (line,) = [
        results_table.row(
            "computers",
            column | {"found": {**column["found"], "LP": row}},
            graph_alone=False,
        )
    ]
    assert line[0] == "computers"
    assert line[-3:] == ["91.00 ± 0.50", "92.00", "+0.00, within"]


def test_what_differs_beyond_the_spread_has_a_reason_or_is_said_not_to_have_one():
    row = {"num_seeds": 1, "test_mean": 72.7, "test_std": 0.0, "diverged": [-1]}
    column = {
        "published": {"RP": (73.0, 0.0), "GCN": (71.6, 0.4), "MLP": (57.1, 0.5)},
        "found": {
            "RP": row,
            "GCN": row | {"test_mean": 60.0, "diverged": [5]},
            "MLP": row | {"test_mean": 57.2},
            "JKNet": published.FEATURELESS,
        },
    }
    (table,) = score_tables.scores(homophilic({"citeseer": column}))
    assert "RP: not explained. The settings of the authors' script give" in table.note
    assert f"GCN: {score_tables.UNTUNED}" in table.note
    assert "MLP" not in table.note
    assert "GCN: training diverged." in table.note
    assert f"JKNet: {published.FEATURELESS}" in table.note
    (table,) = score_tables.scores(homophilic({"cora": column}))
    assert f"RP: {score_tables.UNKNOWN}" in table.note


def test_networks_that_reach_the_limit_of_epochs_are_counted():
    rows = {
        "MLP": {"best_epochs": [0, 100, 251]},
        "GCN": {"best_epochs": [20, 250]},
        "RP": {"val_mean": 1.0},
        "SGC": "not run: data absent",
    }
    assert score_tables.best_epochs(rows, 300) == (
        "MLP: 1 of 3 runs validate best before training. "
        "MLP: 1 of 3 runs reached the limit of 300 epochs."
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"result": {}}', '{"figures": []}'])
def test_a_damaged_record_is_named_in_one_sentence(tmp_path, text):
    (tmp_path / "table2_convergence.json").write_text(text)
    with pytest.raises(ValueError, match=r"table2_convergence.json' is damaged or of"):
        documents.write(tmp_path)
    assert not (tmp_path / "report.md").exists()


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no record in .*; create one with python -m"):
        documents.write(tmp_path)


def test_the_tables_of_the_readme_are_made_of_the_records():
    readme = (ROOT / "README.md").read_text()
    shown = readme.split("<!-- results -->\n")[1].split("\n<!-- /results -->")[0]
    assert shown == results_table.section(results_table.RESULTS)


def test_the_committed_report_is_made_of_the_committed_records():
    sections = documents.sections(results_table.RESULTS)
    assert all(section.tables for section in sections)
    text = (results_table.RESULTS / "report.md").read_text()
    assert text == documents.markdown(sections)


def test_every_experiment_of_the_paper_has_a_command_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    for name in record_tables.TABLES:
        assert f"`python -m experiments.paper.{name}" in readme
    makefile = (ROOT / "Makefile").read_text()
    assert all(name in makefile for name in record_tables.TABLES)


def test_absent_sets_are_named_so_and_show_no_number_of_ours():
    column = {"published": {"RP": (66.01, 0.56)}, "found": published.ABSENT}
    (table,) = score_tables.scores(homophilic({"roman-empire": column}))
    assert table.note == published.ABSENT
    assert table.rows == [["RP", "-", "-", "66.01 ± 0.56", "-"]]
    panel = {"published": {}, "found": published.ABSENT}
    (table,) = record_tables.curves({"result": {"products": panel}})
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
    markdown, latex, page = (path.read_text() for path in documents.write(tmp_path))
    assert "<script>" not in page
    assert r"<script>\|x\|</script>" in markdown
    assert r"\textbar{}x\textbar{}" in latex


FINDINGS = {  # row of the page -> its names on Cora, Texas and the synthetic graphs
    "training raises kernel-target alignment": ["training raises kernel-target"] * 3,
    "less graph, lower kernel-graph alignment": ["less graph, lower"] * 2 + [None],
    "kernel-graph alignment stays high": [
        None, None, "kernel-graph alignment (A^2L of each",
    ],
    "more edges, higher (Cora) or lower (Texas) kernel-target alignment": [
        "more graph, better kernel", "more graph, worse kernel", None,
    ],
    "less homophily, lower kernel-target alignment": [
        None, None, "less homophily, lower kernel",
    ],
    "more edges, higher (Cora) or lower (Texas) test accuracy": [
        "more graph, better test", "more graph, worse test", None,
    ],
    "less homophily, lower test accuracy": [None, None, "less homophily, lower test"],
    "training raises kernel-graph alignment on homophilic graphs, and lowers it on "
    "heterophilic ones": [
        *("training raises kernel-graph", "training lowers"),
        "training raises kernel-graph",
    ],
}  # fmt: skip


def test_the_findings_of_the_page_are_those_of_the_record():
    record = json.loads(
        (results_table.RESULTS / "figure3_ntk_alignment.json").read_text()
    )["result"]
    columns = [
        (record["cora"]["findings"], 0),
        (record["cora"]["findings_two_ends"], 0),
        (record["cora"]["findings_without"], 0),
        (record["texas"]["findings"], 1),
        (record["texas"]["findings_two_ends"], 1),
        (record["sbm"]["findings"], 2),
        (record["sbm"]["findings_two_ends"], 2),
    ]

    def cell(found, start):
        if start is None:
            return "-"
        (each,) = (x for name, x in found.items() if name.startswith(start))
        return f"{each['holds']} of {each['seeds']}"

    page = (ROOT / "docs" / "finite.md").read_text()
    for name, starts in FINDINGS.items():
        cells = [cell(found, starts[number]) for found, number in columns]
        assert f"| {name} | {' | '.join(cells)} |\n" in page
    judged = {name for found, _ in columns for name in found}
    known = tuple({x for starts in FINDINGS.values() for x in starts if x})
    assert [n for n in judged if not n.startswith(known)] == [
        n for n in judged if "of the homophilic edges" in n
    ]
