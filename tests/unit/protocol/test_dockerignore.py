"""``.dockerignore``: the rules, against what Docker's documentation says of each."""

from __future__ import annotations

import pytest

from tupper.protocol.dockerignore import IgnoreRules, select


@pytest.mark.parametrize(
    ("rules", "ignored", "kept"),
    [
        ("*/temp*", ["a/temporary.txt", "a/temp"], ["temp", "a/b/temp"]),
        ("*/*/temp*", ["a/b/temporary"], ["a/temp"]),
        ("temp?", ["tempa", "tempb"], ["temp", "tempab", "temp/"]),
        ("**/*.go", ["x.go", "a/b/c.go"], ["x.goo"]),
        ("*.md\n!README.md", ["other.md"], ["README.md", "a/x.md"]),
        ("*.md\n!README*.md\nREADME-secret.md", ["x.md", "README-secret.md"], ["README.md"]),
        ("node_modules", ["node_modules", "node_modules/a/b"], ["a/node_modules"]),
        ("/abs", ["abs"], ["a/abs"]),
        ("./dot/../x", ["x"], ["dot"]),
        ("# comment\n\n  spaced  ", ["spaced"], ["# comment"]),
        ("dir/**", ["dir/a", "dir/a/b"], ["dir", "other"]),
        ("*\n!src\nsrc/*.pyc", ["x", "src/a.pyc"], ["src", "src/a.py"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a-c]x", ["dx"], ["ax"]),
        (r"\*", ["*"], ["a"]),
    ],
)
def test_rules(rules, ignored, kept):
    compiled = IgnoreRules(rules)
    assert [path for path in ignored if not compiled.ignores(path)] == []
    assert [path for path in kept if compiled.ignores(path)] == []


def test_select_takes_directories_with_all_below_them():
    paths = ["a", "a/x", "a/y", "b.txt", "c.txt"]
    assert select(paths, ".") == paths
    assert select(paths, "a/") == ["a", "a/x", "a/y"]
    assert select(paths, "*.txt") == ["b.txt", "c.txt"]
    assert select(paths, "../../b.txt") == ["b.txt"]
    assert select(paths, "nothing") == []
