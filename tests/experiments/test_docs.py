"""The pages say what is there: links, names, tests, and the numbers of the paper."""

import ast
import importlib
import re
from pathlib import Path

import pytest
import yaml

import gnnrp

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
TABLE = (ROOT / "docs" / "equations.md").read_text()
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")
OUTSIDE = ("http://", "https://")

# Counted in the paper's LaTeX.
NUMBERED = {f"Eq. {number}" for number in range(1, 115)}
NUMBERED |= {f"Table {number}" for number in range(1, 6)}
NUMBERED |= {f"Figure {number}" for number in range(1, 5)}
NUMBERED |= {"Algorithm 1", "Algorithm 2", "Proposition 3.1", "Theorem 3.2"}
NUMBERED |= {"Definition 4.1", "Theorem 4.2", "Theorem 4.3", "Corollary 4.4"}
NUMBERED |= {"Definition 5.1", "Theorem 5.2", "Lemma B.1"}
NUMBERED |= {
    f"App. {letter}.{number}"
    for letter, count in {"A": 3, "B": 8, "C": 4, "D": 3, "E": 3}.items()
    for number in range(1, count + 1)
}

LONG = {"Thm.": "Theorem", "Cor.": "Corollary", "Def.": "Definition", "Sec.": "Section"}
NUMBER = r"(?:\d+(?:\.\d+)?|[A-E]\.\d+)"
ITEM = re.compile(
    r"(Eq\.|Thm\.|Theorem|Cor\.|Corollary|Def\.|Definition|Lemma|Proposition|App\.|"
    rf"Sec\.|Section|Table|Figure|Algorithm) ({NUMBER}(?:(?:, | and |–){NUMBER})*)"
)


def items(text):
    """Return what a text names, "Eq. 3" for each equation of "Eq. 2–4"."""
    found = set()
    for kind, numbers in ITEM.findall(text):
        for part in re.split(", | and ", numbers):
            first, _, last = part.partition("–")
            several = range(int(first), int(last) + 1) if last else [first]
            found |= {f"{LONG.get(kind, kind)} {number}" for number in several}
    return found


def rows():
    """Return what each row names of the paper, its names of here, and its tests."""
    lines = [line for line in TABLE.splitlines() if line.startswith("| ")]
    cells = [line.strip("| ").split(" | ") for line in lines]
    assert {len(row) for row in cells} == {3}
    return [
        (items(row[0]), set(re.findall(r"`([\w.]+)`", row[1])), LINK.findall(row[2]))
        for row in cells
        if row[0] != "in the paper"
    ]


def defined(tree):
    """Yield the names that a module has, itself as "", each with its docstring."""
    yield "", ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, ast.get_docstring(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, None


def sources():
    """Yield module and name of each function, and what its Source line names."""
    for path in sorted((ROOT / "gnnrp").rglob("*.py")):
        for name, text in defined(ast.parse(path.read_text())):
            for line in re.findall(r"Source:(.*?)(?:\n\n|$)", text or "", re.DOTALL):
                yield path, name, items(" ".join(line.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    targets = [
        target
        for _, target, _ in LINK.findall(page.read_text())
        if target and not target.startswith(OUTSIDE)
    ]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_page_can_be_reached():
    contents = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        named = f"({page.name})" in contents and f"\n{page.stem}\n" in contents
        assert named or page.stem == "index"


def test_every_number_of_the_paper_stands_in_the_table_once():
    named = [each for row, _, _ in rows() for each in row if each in NUMBERED]
    assert sorted(named) == sorted(NUMBERED)


MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "gnnrp").rglob("*.py"))
    if not path.stem.startswith("_") or path.stem == "__init__"
]
STEMS = {name.rpartition(".")[2] for name in MODULES}


def objects(name):
    """Return what in the package ends with a dotted name."""
    module, _, last = name.rpartition(".")
    inside = [each for each in MODULES if f".{each}".endswith(f".{module}")]
    found = [each for each in inside if hasattr(importlib.import_module(each), last)]
    return {f"{each}.{last}" for each in found} | ({name} & set(MODULES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_a_page_is_one_object_of_the_package(page):
    names = set(re.findall(r"`((?:\w+\.)+\w+)`", page.read_text()))
    ours = {name for name in names if name.partition(".")[0] in STEMS}
    assert {name: objects(name) for name in ours if len(objects(name)) != 1} == {}


def test_the_table_names_nothing_but_objects_of_the_package():
    names = set().union(*(names for _, names, _ in rows()))
    assert [name for name in names if name.partition(".")[0] not in STEMS] == []
    assert objects("residual.step") == {"gnnrp.propagation.residual.step"}
    assert objects("residual.stop") == set()


def test_every_row_with_something_here_names_a_test():
    for row, names, tests in rows():
        assert bool(tests) == (bool(names) or bool(row & {"Table 1", "Figure 2"}))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    for text, target, _ in LINK.findall(page.read_text()):
        if target.startswith("../tests/") and not text.startswith("tests/"):
            name = "_".join(text.split())
            assert f"\ndef test_{name}(" in (page.parent / target).read_text()


def test_every_difference_has_a_test():
    sections = (ROOT / "docs" / "differences.md").read_text().split("\n#")[2:]
    own = [text for text in sections if not text.startswith(("# Sta", "# What"))]
    assert len(own) > 20
    assert [text for text in own if "../tests/" not in text] == []


def by_item():
    """Return the names beside each item; a section of the appendix has all its rows."""
    found, section = {}, set()
    for row, names, _ in rows():
        section = {item for item in row if item.startswith("App.")} or section
        for item in row | section:
            found.setdefault(item, set()).update(names)
    return found


def test_every_source_line_stands_in_the_table_with_its_function():
    table = by_item()
    for path, name, claimed in sources():
        # A function may be named by its module or by the folder that exports it.
        known_as = tuple(f"{stem}.{name}" for stem in (path.stem, path.parent.name))
        for item in claimed:
            named = table.get(item, set())
            assert named, f"{path}, {name}: {item} is not in the table"
            held = [n for n in named if n.endswith(known_as)] or (
                not name and [n for n in named if n.startswith(known_as)]
            )
            assert held or path.stem.startswith("_"), f"{path}, {name}: {item}"


def test_numbers_are_read_as_they_are_written():
    text = "Thm. 4.2 and Cor. 4.4; Eq. 3 and 8, Eq. 51–53; App. C.3 and D.2 (Sec. 5.1)"
    assert items(text) == {
        "Theorem 4.2", "Corollary 4.4", "Eq. 3", "Eq. 8", "Eq. 51", "Eq. 52", "Eq. 53",
        "App. C.3", "App. D.2", "Section 5.1",
    }  # fmt: skip


def test_the_citation_is_of_this_version_and_of_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == gnnrp.__version__
    paper = citation["preferred-citation"]
    people = [
        f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]
    ]
    readme = (ROOT / "README.md").read_text()
    assert f"title = {{{paper['title']}}}" in readme
    assert f"author = {{{' and '.join(people)}}}" in readme
    assert f"version = {{{gnnrp.__version__}}}" in readme
    assert f"\n## {gnnrp.__version__} - " in (ROOT / "CHANGELOG.md").read_text()
