"""Imports point down: a module sees the layers below, and only its own package."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = (
    "types",
    "runtime",
    "sparse",
    "graph",
    "propagation kernels models datasets metrics plotting",  # do not know each other
    "distributed studies tables",
    "estimator",
    "commands cli",
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names.split()}
SHOWN = ["gnnrp.estimator.ResidualPropagation"]  # to type checkers, and on demand
STRANGERS = RANK["propagation"]
ABOVE = ("experiments", "notebooks", "tests")
MODULES = sorted((ROOT / "gnnrp").rglob("*.py"))


def imported(tree):
    """Yield every dotted name that an import may bring in, ``a.b`` for a and b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def faults(source, home):
    for name in imported(ast.parse(source)):
        top, *rest = name.split(".")
        if top in ABOVE:
            yield name
        if top != "gnnrp" or home == rest[0]:
            continue
        below = home in RANK and RANK[rest[0]] < RANK[home]
        beside = home in RANK and RANK[rest[0]] == RANK[home] != STRANGERS
        if not below and not beside:
            yield name


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    home = path.relative_to(ROOT / "gnnrp").parts[0].removesuffix(".py")
    assert home in RANK or home == "__init__", f"{home} stands in no layer"
    allowed = SHOWN if home == "__init__" else []
    assert list(faults(path.read_text(), home)) == allowed


def test_experiments_import_no_private_module():
    for path in (ROOT / "experiments").rglob("*.py"):
        names = imported(ast.parse(path.read_text()))
        assert [n for n in names if n.startswith("gnnrp") and "._" in n] == [], path


@pytest.mark.parametrize(
    ("home", "line"),
    [
        ("sparse", "from gnnrp import graph"),  # up
        ("kernels", "def f():\n    from gnnrp.propagation.exact import limit"),  # aside
        ("cli", "import experiments.benchmarks.harness"),
        ("__init__", "from gnnrp import types"),
    ],
)
def test_an_import_up_or_sideways_is_found(home, line):
    assert list(faults(line, home))
