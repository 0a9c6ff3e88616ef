"""Without the frameworks: nothing needs them but their adapters, and these say what to install."""

import ast
import importlib
import sys
import tomllib
from pathlib import Path

import pytest

import tupper
import tupper.integrations

PACKAGE = Path(tupper.__file__).parent
ROOT = Path(__file__).parents[3]
FRAMEWORKS = {
    "deepagents": "deepagents",
    "deepagents_code": "deepagents_code",
    "google_adk": "google",
    "harbor": "harbor",
    "inspect_ai": "inspect_ai",
    "langchain": "langchain",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
}


def roots_of_imports(file):
    """The first part of each module that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def test_only_adapters_import_a_framework():
    frameworks = {*FRAMEWORKS.values(), "langchain_core"}
    for file in PACKAGE.rglob("*.py"):
        if file.parent.name not in ("integrations", "mcp"):
            assert frameworks.isdisjoint(roots_of_imports(file)), file


def test_every_adapter_is_known_here_and_has_its_extra_and_its_page():
    modules = {file.stem for file in (PACKAGE / "integrations").glob("[a-z]*.py")}
    assert modules == FRAMEWORKS.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {name.replace("_", "-") for name in modules} <= project["optional-dependencies"].keys()
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "integrations").glob("*.md"))
    for name in modules:
        assert f"tupper.integrations.{name}" in pages
        assert f"tupper[{name.replace('_', '-')}]" in pages


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_adapter_names_its_extra(name, monkeypatch):
    extra = name.replace("_", "-")
    for framework in {FRAMEWORKS[name], FRAMEWORKS.get(name.removesuffix("_code"), name)}:
        monkeypatch.setitem(sys.modules, framework, None)  # as if it were not installed
    for module in [m for m in sys.modules if m.startswith("tupper.integrations.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(f"tupper.integrations.{name}")
    # dcode brings Deep Agents with it, whose adapter is the first that misses something.
    extras = {extra, extra.removesuffix("-code")}
    assert any(f"pip install 'tupper[{extra}]'" in str(caught.value) for extra in extras)
    assert caught.value.__cause__ is not None


def test_the_entry_points_lead_to_adapters():
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    found = points["deepagents_code.sandbox_providers"], points["inspect_ai"]
    assert found == (
        {"tupper": "tupper.integrations.deepagents_code:TupperProvider"},
        {"tupper": "tupper.integrations.inspect_ai"},
    )
