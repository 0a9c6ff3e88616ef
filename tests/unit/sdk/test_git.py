"""What git prints, understood; and its command lines."""

import shlex

import pytest

from tupper import GitAuthException, GitUpstreamException, InvalidArgumentException
from tupper.sdk._shared import git
from tupper.sdk._shared.errors import CommandExitException


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("main", ("main", None, 0, 0, False)),
        ("main...origin/main", ("main", "origin/main", 0, 0, False)),
        ("main...origin/main [ahead 2]", ("main", "origin/main", 2, 0, False)),
        ("main...origin/main [ahead 2, behind 3]", ("main", "origin/main", 2, 3, False)),
        ("main...origin/main [behind 3]", ("main", "origin/main", 0, 3, False)),
        ("main...origin/main [gone]", ("main", "origin/main", 0, 0, False)),
        ("No commits yet on trunk", ("trunk", None, 0, 0, False)),
        ("HEAD (no branch)", (None, None, 0, 0, True)),
    ],
)
def test_heads(head, expected):
    found = git.parse_status(f"## {head}\0")
    assert (
        found.current_branch,
        found.upstream,
        found.ahead,
        found.behind,
        found.detached,
    ) == expected
    assert found.is_clean


def test_files_with_strange_names():
    text = '## main\0R  new "ü"\n\0old name\0UU both\0 T link\0?? a -> b\0'
    found = git.parse_status(text)
    assert [(each.name, each.status, each.renamed_from) for each in found.file_status] == [
        ('new "ü"\n', "renamed", "old name"),
        ("both", "conflict", None),
        ("link", "typechange", None),
        ("a -> b", "untracked", None),
    ]
    assert (found.has_conflicts, found.conflict_count, found.total_count) == (True, 1, 4)


def test_branches():
    found = git.parse_branches("  refs/heads/a\n* refs/heads/feature/b\n")
    assert (found.branches, found.current_branch) == (["a", "feature/b"], "feature/b")
    detached = git.parse_branches("* (HEAD detached at 123)\n  refs/heads/a\n")
    assert (detached.branches, detached.current_branch) == (["a"], None)


def test_lines_are_quoted():
    line = git.render_git("/a b", ["commit", "-m", "$(touch /x); 'q'"])
    assert shlex.split(line) == ["git", "-C", "/a b", "commit", "-m", "$(touch /x); 'q'"]


def test_logins_are_never_arguments():
    login = git.check_login("me", "s3cret")
    assert "s3cret" not in " ".join(login.arguments)
    assert login.environment["TUPPER_GIT_PASSWORD"] == "s3cret"
    assert git.check_login(None, None).arguments == ()
    for user, password in ((None, "p"), ("a\nb", "p"), ("a", "p\nhost=evil")):
        with pytest.raises(InvalidArgumentException):
            git.check_login(user, password)


def test_a_login_that_shall_be_kept():
    kept = git.url_with_login("https://old@example.com:8443/a?b", "m e", "p@s:s")
    assert kept == "https://m%20e:p%40s%3As@example.com:8443/a?b"
    with pytest.raises(InvalidArgumentException):
        git.url_with_login("git@example.com:a", "u", "p")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "fatal: could not read Username for 'https://x': terminal prompts disabled",
            GitAuthException,
        ),
        ("remote: Invalid username or token.", GitAuthException),
        ("fatal: The current branch main has no upstream branch.", GitUpstreamException),
        ("There is no tracking information for the current branch.", GitUpstreamException),
        ("fatal: not a git repository", CommandExitException),
    ],
)
def test_failures(said, kind):
    error = CommandExitException(stderr=said, stdout="", exit_code=128, error="exit status 128")
    found = git.explain(error, "push")
    assert type(found) is kind
    assert said in str(found) or found is error
