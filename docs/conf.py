"""Sphinx configuration: Markdown pages, executed notebooks, a page for each module.

`make docs` builds the site. The source folder is the root of the repository, so that
links between files work both on the site and in the repository.
"""

import ast
import contextlib
import importlib
import inspect
import io
import re
import textwrap
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
extensions += ["sphinx_copybutton"]
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
html_math_renderer = "mathml"  # MathJax would need a network

copybutton_prompt_text = r">>> |\.\.\. "  # copied without prompts and outputs
copybutton_prompt_is_regexp = True

nb_execution_mode = "off"  # `make notebooks` stores the outputs, and a test checks them
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]  # else "Variables"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
# Names of other packages are not resolved, as that would need their sites.
nitpick_ignore_regex = [(r"py:.*", r"(?!gnnrp\.).*"), (r"py:.*", r".*\._.*")]
# A type variable, and a default whose class is documented one level up.
nitpick_ignore = [
    ("py:class", "gnnrp.propagation.problem.StepSize"),
    ("py:class", "gnnrp.propagation.selection.Selection"),
]


def modules():
    """Yield the dotted names of the public modules, in order."""
    for path in sorted((ROOT / "gnnrp").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if "._" not in name:
            yield name


def members(name):
    """Return the names in `__all__` of a module, else its definitions and aliases."""
    module, above = importlib.import_module(name), exported_above(name)
    if hasattr(module, "__all__"):  # modules have their own pages
        own = [n for n in module.__all__ if f"{name}.{n}" not in set(modules())]
        return [n for n in own if n not in above]
    tree, names = ast.parse(inspect.getsource(module)), []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    return [n for n in names if not n.startswith("_") and n not in above]


def exported_above(name):
    """Return the names that the parent packages of a module export and document."""
    parts = name.split(".")
    parents = [".".join(parts[:i]) for i in range(1, len(parts))]
    exports = [getattr(importlib.import_module(x), "__all__", []) for x in parents]
    return {export for names in exports for export in names}


def help_text(command):
    """Return the `--help` of a command as a literal block."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        cli.main([command, "--help"])
    lines = [  # tyro does not wrap the text above the flags
        part
        for line in output.getvalue().splitlines()
        for part in (textwrap.wrap(line, 80) if len(line) > 80 else [line])
    ]
    return ["::", "", *[f"   {line}" for line in lines]]


def write_api():
    """Write a page for each public module, and remove all other pages."""
    API.mkdir(exist_ok=True)
    for page in API.glob("*.rst"):
        page.unlink()
    command_modules = {f"gnnrp.commands.{command}" for command in flags.COMMANDS}
    names = list(modules())
    for name in names:
        children = [child for child in names if child.rpartition(".")[0] == name]
        lines = [name, "=" * len(name), "", f".. automodule:: {name}"]
        if name in command_modules:
            lines += ["", *help_text(name.rpartition(".")[2])]
        else:
            # Without names, the option would document everything in the module.
            own = members(name)
            lines += [f"   :members: {', '.join(own)}"] if own else []
            lines += ["", ".. toctree::", ""]
            lines += [f"   {child}" for child in children]
        (API / f"{name}.rst").write_text("\n".join(lines) + "\n")


def shorten(app, what, name, obj, options, signature, returned):
    """Shorten a signature: no flax parents, addresses or modules of other packages."""
    texts = [text or "" for text in (signature, returned)]
    for pattern, replacement in (
        (r", parent: .*?, name: str \| None = None", ""),
        (r"<[^>]* object>", "..."),
        (r"(?<![\w.])~?(?!gnnrp)[\w.]*\.(?=[A-Z])", ""),
    ):
        texts = [re.sub(pattern, replacement, text) for text in texts]
    return texts[0] or None, texts[1] or None


class LinkNames(SphinxPostTransform):
    """Link a dotted name in code, such as `residual.step`, if it names one object."""

    default_priority = 5

    def run(self, **kwargs):
        """Link each dotted name that is not part of a link yet."""
        objects = self.env.domains.python_domain
        for code in list(self.document.findall(nodes.literal)):
            name, parent = code.astext(), code.parent
            if isinstance(parent, nodes.reference) or not re.fullmatch(NAME, name):
                continue
            matches = objects.find_obj(self.env, None, None, name, None, searchmode=1)
            if len(matches) == 1:
                (full, entry), page = matches[0], self.env.docname
                link = make_refnode(
                    self.app.builder, page, entry.docname, entry.node_id, code, full
                )
                parent.replace(code, link)


def escape(app, what, name, obj, options, lines):
    """Escape markup in |x| and x_, and in x: y of attributes."""
    if what == "attribute":
        lines[:0] = ["..", ""]
    for number, line in enumerate(lines):
        pieces = re.split(r"(``.*?``)", line)
        pieces[::2] = [re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", p) for p in pieces[::2]]
        lines[number] = "".join(pieces)


def add_fields(app, what, name, obj, options, lines):
    """List the fields of a tuple or dataclass with their comments."""
    if what != "class" or not hasattr(obj, "__annotations__"):
        return
    fields = re.findall(r"^    (\w+): [^#\n]*  # (.+)$", inspect.getsource(obj), re.M)
    lines += ["", *[f"- **{field}**: {comment}" for field, comment in fields], ""]


def skip_field(app, what, name, obj, skip, options):
    """Skip members that are fields, since the signature lists them."""
    return True if type(obj).__name__ in {"_tuplegetter", "custom_jvp"} else None


def visit_math(writer, node):
    """Write a formula as MathML, which browsers show without a script.

    Raises:
        nodes.SkipNode: always, as the content is already written.
    """
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    spaced = f'<div style="margin: 1em 0">{formula}</div>'
    writer.body.append(spaced if block else formula)
    raise nodes.SkipNode


def setup(app):
    """Write the module pages and connect the hooks that produce their text."""
    write_api()
    app.add_post_transform(LinkNames)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", add_fields, priority=100)
    app.connect("autodoc-process-docstring", escape, priority=200)
    app.connect("autodoc-skip-member", skip_field)
