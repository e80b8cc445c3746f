"""The site: pages of Markdown, executed notebooks, and a page for each module.

`make docs` builds it. The source folder is the root of the repository, so that a link
between files is the same here and where the files are read without being built.
"""

import ast
import contextlib
import importlib
import inspect
import io
import re
import textwrap
import typing
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

import gnnrp
from gnnrp import cli
from gnnrp.commands import flags

ROOT = Path(__file__).parents[1]
API = ROOT / "docs" / "api"
NAME = r"\w+(\.\w+)+"

project = "gnnrp"
author = "The gnnrp developers"
release = gnnrp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst", "notebooks/*.ipynb"]
include_patterns += ["experiments/results/*.md"]
exclude_patterns = [".*", "docs/_build", "build", "dist"]

html_theme = "furo"
html_title = "gnnrp"
html_show_copyright = False
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}
html_copy_source = False
html_math_renderer = "mathml"  # MathJax would be fetched from elsewhere

nb_execution_mode = "off"  # `make notebooks` has done so, a test holds the outputs
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_attr_annotations = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
# Other people's names are not looked up: that would need their sites.
nitpick_ignore_regex = [(r"py:.*", r"(?!gnnrp\.).*"), (r"py:.*", r".*\._.*")]


def modules():
    """Yield the dotted names of the public modules, in order."""
    for path in sorted((ROOT / "gnnrp").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if "._" not in name:
            yield name


def members(name):
    """Return what a module says it has, or else defines, perhaps by another name."""
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):  # modules have pages of their own
        return [n for n in module.__all__ if f"{name}.{n}" not in set(modules())]
    tree, names = ast.parse(inspect.getsource(module)), []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [each.id for each in targets if isinstance(each, ast.Name)]
    return [each for each in names if not each.startswith("_")]


def helped(command):
    """Return what a command prints of its flags, as a block of text."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        cli.main([command, "--help"])
    lines = [  # tyro wraps all but what stands on top
        part
        for line in said.getvalue().splitlines()
        for part in (textwrap.wrap(line, 80) if len(line) > 80 else [line])
    ]
    return ["::", "", *[f"   {line}" for line in lines]]


def write_api():
    """Write a page for each public module; others that stood there are removed."""
    API.mkdir(exist_ok=True)
    for page in API.glob("*.rst"):
        page.unlink()
    of_flags = {
        typing.get_args(command)[0].__module__
        for command in typing.get_args(flags.Command)
    }
    names = list(modules())
    for name in names:
        inside = [each for each in names if each.rpartition(".")[0] == name]
        lines = [name, "=" * len(name), "", f".. automodule:: {name}"]
        if name in of_flags:
            lines += ["", *helped(name.rpartition(".")[2])]
        else:
            lines += [
                f"   :members: {', '.join(members(name))}",
                "",
                ".. toctree::",
                "",
            ]
            lines += [f"   {each}" for each in inside]
        (API / f"{name}.rst").write_text("\n".join(lines) + "\n")


def shorten(app, what, name, obj, options, signature, returned):
    """Leave out what only Python needs: others' modules, addresses, flax's parents."""
    found = [text or "" for text in (signature, returned)]
    for pattern, text in (
        (r", parent: .*?, name: str \| None = None", ""),
        (r"<[^>]* object>", "..."),
        (r"(?<![\w.])~?(?!gnnrp)[\w.]*\.(?=[A-Z])", ""),
    ):
        found = [re.sub(pattern, text, each) for each in found]
    return found[0] or None, found[1] or None


class LinkNames(SphinxPostTransform):
    """Make a link of a name in code, such as `residual.step`, if one object has it."""

    default_priority = 5

    def run(self, **kwargs):
        """Look at each piece of code that is no link and has a point in it."""
        objects = self.env.domains.python_domain
        for code in list(self.document.findall(nodes.literal)):
            name, above = code.astext(), code.parent
            if isinstance(above, nodes.reference) or not re.fullmatch(NAME, name):
                continue
            found = objects.find_obj(self.env, None, None, name, None, searchmode=1)
            if len(found) == 1:
                (full, entry), page = found[0], self.env.docname
                link = make_refnode(
                    self.app.builder, page, entry.docname, entry.node_id, code, full
                )
                above.replace(code, link)


def escape(app, what, name, obj, options, lines):
    """Keep |x|, x_ and, of attributes, x: y from being read as markup."""
    if what == "attribute":
        lines[:0] = ["..", ""]
    for number, line in enumerate(lines):
        pieces = re.split(r"(``.*?``)", line)
        pieces[::2] = [re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", p) for p in pieces[::2]]
        lines[number] = "".join(pieces)


def add_fields(app, what, name, obj, options, lines):
    """Say of each field of a tuple or dataclass what the comment beside it says."""
    if what != "class" or not hasattr(obj, "__annotations__"):
        return
    fields = re.findall(r"^    (\w+): [^#\n]*  # (.+)$", inspect.getsource(obj), re.M)
    lines += ["", *[f"- **{field}**: {comment}" for field, comment in fields], ""]


def skip_field(app, what, name, obj, skip, options):
    """Leave out fields that stand in the signature, if they look like members."""
    return True if type(obj).__name__ in {"_tuplegetter", "custom_jvp"} else None


def visit_math(writer, node):
    """Write a formula as MathML, which browsers show without a script.

    Raises:
        nodes.SkipNode: always; what is inside has been written.
    """
    block = isinstance(node, nodes.math_block)
    writer.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def setup(app):
    """Write the pages of the modules; connect what makes their text."""
    write_api()
    app.add_post_transform(LinkNames)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", add_fields, priority=100)
    app.connect("autodoc-process-docstring", escape, priority=200)
    app.connect("autodoc-skip-member", skip_field)
