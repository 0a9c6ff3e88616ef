"""Each adapter stays a thin layer over the public SDK."""

import ast

from repo.tool import ROOT

MAX_LINES = 150  # of code: without blank lines, comments and docstrings
FOLDER = ROOT / "src" / "tupper" / "integrations"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(text):
    """The numbers of the lines that are code."""
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
    docs = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    left_out = {n for doc in docs for n in range(doc.lineno, doc.end_lineno + 1)}
    lines = enumerate(text.splitlines(), 1)
    bare = [(n, line.strip()) for n, line in lines if n not in left_out]
    return [n for n, line in bare if line and not line.startswith("#")]


def imports(file):
    """The names of the modules of ours that a module imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "tupper.integrations":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tupper.integ"):
            yield node.module.rpartition(".")[2]


def needs_a_framework(file):
    """Whether a module is a part of an adapter: what all of them use needs none."""
    return any(isinstance(node, ast.Try) for node in ast.parse(file.read_text()).body)


def test_only_code_counts():
    text = '"""A."""\n\n# b\ndef c():\n    """D\n\n    e.\n    """\n    return """\n    f"""\n'
    assert lines_of_code(text) == [4, 9, 10]


def test_every_adapter_is_thin():
    sizes = {}
    for file in FOLDER.glob("[a-z]*.py"):
        private = {name for name in imports(file) if name.startswith("_")}
        parts = [part for name in private if needs_a_framework(part := FOLDER / f"{name}.py")]
        sizes[file.stem] = sum(len(lines_of_code(part.read_text())) for part in (file, *parts))
    assert len(sizes) >= 9
    assert {name: n for name, n in sizes.items() if n > MAX_LINES} == {}
