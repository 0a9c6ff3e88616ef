"""An ordinary user's builds of templates; run as that user by ``test_user.py``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from background import kill_background
from tupper import AsyncTemplate, Sandbox, Template
from tupper.core.paths import find_paths

DOCKERFILE = """
FROM minimal AS one
USER root
RUN mkdir -p /opt/old/deep && echo old >/opt/old/deep/file && echo gone >/opt/gone && echo a >/opt/a
FROM minimal
ENV GREETING="hello there"
USER root
COPY --from=one /opt /opt
COPY src /app/src
COPY --chown=1234:77 --chmod=640 src/a.txt /app/owned
RUN cp /bin/busybox /opt/suid && chmod 4755 /opt/suid && mkdir -m 2770 /opt/shared \
 && chown 77:1234 /opt/shared && ln /opt/a /opt/hard && chown 1000:1000 /opt/old && chmod 711 /tmp
RUN rm /opt/gone && rm -r /opt/old && mkdir /opt/old && echo new >/opt/old/new && rm -r /app/src/sub
WORKDIR /job/here
RUN echo "$GREETING" >said && chown -R user /job
USER user
"""
LOOK = (
    "id -un; pwd; echo $GREETING; cat said; stat -c '%a %u:%g' /opt/suid /opt/shared /app/owned "
    "/tmp; ls /opt /opt/old /app/src; [ /opt/a -ef /opt/hard ] && echo same; cat /app/src/a.txt"
)
SEEN = [
    *("user", "/job/here", "hello there", "hello there"),
    *("4755 0:0", "2770 77:1234", "640 1234:77", "711 0:0"),
    *("/app/src:", "a.txt", "", "/opt:", "a", "hard", "old", "shared", "suid", ""),
    *("/opt/old:", "new", "same", "A"),
]


def tupper(*argv, check=True):
    argv = [sys.executable, "-m", "tupper", *argv]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert not check or said.returncode == 0, said.stderr
    return said


@pytest.fixture
def context(tmp_path):
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "sub" / "b").write_text("B")
    (tmp_path / "src" / "a.txt").write_text("A")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    return tmp_path


def build(context, text, name, *, check=True):
    (context / "Dockerfile").write_text(text)
    return tupper("template", "build", name, "-f", str(context / "Dockerfile"), check=check)


def inside(name, script, **options):
    with Sandbox.create(name, timeout=300, memory=256, disk=256, **options) as made:
        return made.commands.run(script).stdout


def assert_nothing_left():
    data = find_paths().data
    assert not list((data / "build").glob("tmp-*"))
    assert not list((data / "images" / "staging").iterdir())
    assert str(data / "build") not in Path("/proc/self/mountinfo").read_text()


def test_a_dockerfile(context):
    build(context, DOCKERFILE, "whole")
    assert inside("whole", LOOK).splitlines() == SEEN
    assert "unchanged" in build(context, DOCKERFILE, "whole").stderr
    assert_nothing_left()


def test_a_template_stands_on_another_one(context):
    build(context, "FROM minimal\nUSER root\nRUN mkdir /d && touch /d/a /d/b\n", "below")
    build(context, "FROM below\nUSER root\nRUN rm /d/a && touch /d/c\n", "above")
    assert inside("above", "ls /d").split() == ["b", "c"]
    assert inside("below", "ls /d").split() == ["a", "b"]


def steps():
    return Template().from_template("minimal").run_cmd("echo word >word").set_envs({"E": "e"})


def test_steps_by_the_sdk():
    Template.build(steps(), "by-steps")
    assert inside("by-steps", "cat word; echo $E").split() == ["word", "e"]


async def test_steps_by_the_async_sdk():
    await AsyncTemplate.build(
        AsyncTemplate().from_template("minimal").run_cmd("echo more >word"), "by-steps-async"
    )
    assert inside("by-steps-async", "cat word") == "more\n"


def test_a_step_that_fails_leaves_nothing(context):
    said = build(context, "FROM minimal\nRUN echo why; exit 3\n", "broken", check=False)
    assert said.returncode == 1
    assert "line 2: exit status 3" in said.stderr
    assert_nothing_left()


def test_links_that_a_build_plants_lead_nowhere(context, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "precious").write_text("host's own")
    text = f"""
FROM minimal
USER root
RUN mkdir -p {outside} && ln -s {outside} /target && ln -s ../../../../../../../..{outside} /up
COPY src/a.txt /target/precious
COPY src/a.txt /up/precious
RUN rm -rf /target /up && mknod /null c 1 3; mknod /nothing c 0 0; rm -rf /tmp && ln -s {outside} /tmp
"""
    build(context, text, "hostile")
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [
        ("precious", "host's own")
    ]
    assert_nothing_left()


def test_a_build_that_is_killed_leaves_nothing(context):
    (context / "Dockerfile").write_text("FROM minimal\nRUN echo started; sleep 600\n")
    argv = [sys.executable, "-m", "tupper", "template", "build", "cut", "-f"]
    process = subprocess.Popen(
        [*argv, context / "Dockerfile"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert any(line.strip() == "started" for line in process.stderr)
    kill_background()
    process.stderr.close()
    assert process.wait(60)
    names = [item["name"] for item in json.loads(tupper("template", "list", "--json").stdout)]
    assert "cut" not in names
    assert_nothing_left()


def test_prune_takes_the_layers_of_all_owners(context):
    build(context, "FROM minimal\nUSER root\nRUN mkdir -m 700 /d && chown 77 /d\n", "x")
    tupper("image", "prune")
    assert not list((find_paths().data / "build").iterdir())
