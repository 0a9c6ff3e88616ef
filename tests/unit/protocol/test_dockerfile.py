"""Dockerfiles: text to steps, variables, and errors that name their line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupper.core.errors import TemplateError
from tupper.protocol.dockerfile import (
    Arg,
    Cmd,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Ignored,
    Run,
    Shell,
    User,
    Workdir,
    expand,
    expand_stage,
    global_args,
    parse_dockerfile,
    parse_ports,
)

BIG = r"""# syntax=docker/dockerfile:1
# escape=\
ARG VERSION=3.12
FROM --platform=linux/amd64 python:${VERSION}-slim AS Build
ARG VERSION
ENV A=1 B="two words" C=$A/x
RUN apt-get update && \
    # a comment in between

    apt-get install -y git
RUN ["echo", "$A"]
RUN --mount=type=cache,target=/root/.cache <<EOF
set -e
echo "$A" # stays
EOF
WORKDIR /app/${A}
COPY --chown=user:user --chmod=755 src/ "a file" ./
COPY <<conf.ini <<-'raw.ini' /etc/
a=$A
conf.ini
	b=$A
raw.ini

FROM scratch
COPY --from=build /out /out
ADD data.tar.gz /data/
EXPOSE 80 443/tcp 53/udp 8000-8002
USER 1000:1000
LABEL k=v "k 2"='v 2'
SHELL ["/bin/bash", "-c"]
VOLUME /data
ENTRYPOINT ["/ep"]
CMD run me
"""


def test_a_file_with_everything():
    parsed = parse_dockerfile(BIG)
    assert [(arg.name, arg.default) for arg in parsed.args] == [("VERSION", "3.12")]
    build, final = parsed.stages
    assert (build.base, build.name, build.platform) == (
        "python:${VERSION}-slim",
        "build",
        "linux/amd64",
    )
    assert parsed.stage("Build") is build
    assert parsed.stage("1") is final
    assert parsed.stage("x") is None
    assert [type(step) for step in build.steps] == [Arg, Env, Run, Run, Run, Workdir, Copy, Copy]
    assert build.steps[2].command == ("apt-get update &&     apt-get install -y git",)
    assert (build.steps[2].line, build.steps[2].is_shell) == (7, True)
    assert (build.steps[3].command, build.steps[3].is_shell) == (("echo", "$A"), False)
    assert build.steps[4].script() == 'set -e\necho "$A" # stays\n'
    assert [type(step) for step in final.steps] == [
        Copy, Copy, Expose, User, type(final.steps[4]), Shell, Ignored, Entrypoint, Cmd,
    ]  # fmt: skip
    assert final.steps[0].from_ == "build"
    assert final.steps[1].unpack
    assert not final.steps[0].unpack
    assert parse_ports(final.steps[2]) == (80, 443, 8000, 8001, 8002)
    assert final.steps[4].pairs == (("k", "v"), ("k 2", "'v 2'"))
    assert (final.steps[-1].command, final.steps[-1].is_shell) == (("run me",), True)


def test_variables_are_substituted_where_docker_does_it():
    parsed = parse_dockerfile(BIG)
    outer = global_args(parsed, {})
    steps = list(expand_stage(parsed.stages[0], build_args={}, outer=outer, env={"BASE": "b"}))
    assert steps[0][1]["VERSION"] == "3.12"
    # One ENV line sees the variables as they were before it.
    assert steps[1][0].pairs == (("A", "1"), ("B", "two words"), ("C", "/x"))
    assert steps[5][0].path == "/app/1"
    assert steps[6][0].sources == ("src/", "a file")
    documents = steps[7][0].heredocs
    assert [(doc.name, doc.content) for doc in documents] == [
        ("conf.ini", "a=1\n"),
        ("raw.ini", "b=$A\n"),
    ] or documents == ()
    assert steps[-1][1] == {"VERSION": "3.12", "A": "1", "B": "two words", "C": "/x", "BASE": "b"}


def test_env_wins_over_arg_and_a_build_argument_over_a_default():
    parsed = parse_dockerfile(
        "ARG G=outer\nFROM x\nARG G\nARG N=1\nARG M=${N}0\nENV E=$N\nARG E=arg\nRUN x"
    )
    last = list(
        expand_stage(
            parsed.stages[0],
            build_args={"N": "2", "X": "no"},
            outer=global_args(parsed, {}),
            env={},
        )
    )[-1][1]
    assert last == {"G": "outer", "N": "2", "M": "20", "E": "2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$A", "1"), ("${A}b", "1b"), ("$Ab", ""), ("${X:-d}", "d"), ("${EMPTY:-d}", "d"), ("${EMPTY-d}", ""),
        ("${A:+alt}", "alt"), ("${X:+alt}", ""), ("${X:-${A}}", "1"), (r"\$A", "$A"), ("'$A'", "$A"),
        ('"$A b"', "1 b"), ("a'b'\"c\"", "abc"), ("$", "$"), ("$$A", "$1"), (r'"\a\""', r'\a"'), (r"a\ b", "a b"),
        ("${EMPTY+set}", "set"), ("${A:?no}", "1"),
    ],
)  # fmt: skip
def test_expand(text, expected):
    assert expand(text, {"A": "1", "EMPTY": ""}.get) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no FROM"),
        ("RUN x", "line 1: the first instruction must be FROM"),
        ("FROM x\nFRO y", "line 2: unknown instruction FRO: FRO y"),
        ("FROM x\nRUN", "line 2: RUN wants an argument"),
        ("FROM x y", "line 1: FROM wants IMAGE"),
        ("FROM x AS 1a", "cannot be a stage's name"),
        ("FROM x\n\n\nENV A", "line 4: a name without a value: ENV A"),
        ("FROM x\nENV A=1 B", "'B' is not NAME=VALUE"),
        ('FROM x\nENV A="1', "never closed"),
        ("FROM x\nCOPY a", "line 2: wants at least one source"),
        ("FROM x\nCOPY --frm=a a b", "unknown flag --frm"),
        ("FROM x\nADD https://e.example/x /x", "ADD of an address"),
        ("FROM x\nRUN <<EOF\necho", "line 2: <<EOF is never ended"),
        ("FROM x\nSHELL bash", "JSON form"),
        ("FROM x\nONBUILD RUN x", "ONBUILD is not supported"),
        ("FROM x\nUSER a b", "USER wants one word"),
        ("FROM x\nARG 1=2", "'1' is not a variable's name"),
        ("# escape=x\nFROM x", "escape must be"),
        ("FROM x\n???", "line 2: not an instruction: ???"),
    ],
)
def test_errors_name_line_and_text(text, message):
    with pytest.raises(TemplateError) as failure:
        parse_dockerfile(text)
    assert message in failure.value.message


@pytest.mark.parametrize("text", ["${A", "${A!x}", "${}", "${1a}", "${X:?missing}"])
def test_bad_variables(text):
    with pytest.raises(TemplateError):
        expand(text, {"A": "1"}.get)


def test_other_escape_and_line_ends():
    parsed = parse_dockerfile("\ufeff# escape=`\r\nFROM x\r\nRUN a `\r\n  b\r\nRUN dir \\\r\n")
    assert [step.command for step in parsed.stages[0].steps] == [("a   b",), ("dir \\",)]


def test_a_heredoc_for_another_program_keeps_its_word():
    step = (
        parse_dockerfile("FROM x\nRUN python3 <<EOF\nprint(1)\nEOF\nRUN after").stages[0].steps[0]
    )
    assert step.script() == "python3 <<EOF\nprint(1)\nEOF\n"


@given(st.text(alphabet="FROMRUNCPYENVfromx \n\\$\"'{}<E=[]#,:-", max_size=120))
def test_any_text_parses_or_gives_our_error(text):
    try:
        parsed = parse_dockerfile(text)
        for stage in parsed.stages:
            list(expand_stage(stage, build_args={}, outer={}, env={}))
    except TemplateError:
        pass
