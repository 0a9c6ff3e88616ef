"""Dockerfiles and recipes, built inside real sandboxes; hostile ones too."""

import io
import json
import tarfile
import time
from pathlib import Path

import pytest

from integration.engine.test_real import run
from oci_writer import Item, Layout, directory, symlink

pytestmark = [pytest.mark.root, pytest.mark.gvisor]


def build(http, text, *, name="built", context=None, ok=True, **body):
    if context is not None:
        body["contextPath"] = str(context)
    answer = http.post("/tupper/v1/templates", json={"name": name, "dockerfile": text, **body})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[-1]["event"] == ("done" if ok else "error"), events[-5:]
    return events


def text_of(events):
    return "\n".join(event.get("message", "") for event in events)


def inside(http, script, name="built"):
    made = http.post("/v2/sandboxes", json={"templateID": name}).json()
    try:
        return run(made, script)
    finally:
        http.delete(f"/sandboxes/{made['sandboxID']}")


@pytest.fixture
def context(tmp_path):
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "a.txt").write_text("a")
    (tmp_path / "src" / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "src" / "sub" / "run.sh").chmod(0o755)
    (tmp_path / "src" / "link").symlink_to("/etc/hostname")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / ".dockerignore").write_text("secret\n")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("packed")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"p"))
    return tmp_path


WHOLE = """
ARG BASE=minimal
FROM $BASE AS one
USER root
RUN echo from-one > /one.txt && rm /etc/shells || true
FROM ${BASE}
ARG V=1
ENV GREETING="hello $V"
USER root
RUN echo kept > /tmp/kept
WORKDIR /app/data
COPY src /app/src
COPY src/a.txt /app/renamed.txt
COPY --chmod=600 src/a.txt /app/private/
COPY . /ctx/
COPY --from=one /one.txt /two.txt
COPY --from=one /one.txt /dir/
COPY --from=one /home /homes
ADD x.tar.gz /unpacked/
COPY <<EOT /app/heredoc
hi $GREETING
EOT
RUN echo "$GREETING" > out && rm -r /app/src/sub && mkdir /app/src/sub && touch /app/src/sub/new
RUN ["/bin/sh", "-c", "exec touch /app/exec-form"]
USER user
CMD ["sh"]
"""


def test_whole_dockerfile(host, http, context):
    build(http, WHOLE, context=context, buildArgs={"V": "5"})
    seen = inside(
        http,
        "cat /tmp/kept; ls /tmp; id -un; pwd; echo $GREETING; cat /two.txt /dir/one.txt /app/heredoc out /app/renamed.txt;"
        " echo; ls /app/src/sub /app/exec-form /unpacked; ls /ctx; stat -c %a /app/private/a.txt;"
        " readlink /app/src/link; ls -d /homes/user",
    )
    assert seen.split() == [
        *(
            "kept",
            "kept",
            "user",
            "/app/data",
            "hello",
            "5",
            "from-one",
            "from-one",
            "hi",
            "hello",
            "5",
        ),
        *("hello", "5", "a", "/app/exec-form", "/app/src/sub:", "new", "/unpacked:", "packed"),
        *("src", "x.tar.gz", "600", "/etc/hostname", "/homes/user"),
    ]
    again = build(http, WHOLE, context=context, buildArgs={"V": "5"})
    assert text_of(again).count("unchanged") == 14
    (context / "src" / "a.txt").write_text("changed")
    third = build(http, WHOLE, context=context, buildArgs={"V": "5"})
    assert text_of(third).count("unchanged") == 3
    assert inside(http, "cat /app/renamed.txt") == "changed"
    assert host.leftovers() == []
    assert not list((host.paths.data / "build").glob("tmp-*"))


def test_failed_step_names_its_line_and_leaves_nothing(host, http):
    events = build(
        http, "FROM minimal\nUSER root\nRUN echo why >&2; exit 3\n", ok=False, name="broken"
    )
    error = events[-1]["error"]
    assert error["error_code"] == "template_error"
    assert "line 3" in error["message"]
    assert "exit status 3" in error["message"]
    assert "why" in text_of(events)
    assert http.post("/v2/sandboxes", json={"templateID": "broken"}).status_code == 404
    assert host.leftovers() == []
    assert not list((host.paths.data / "build").glob("tmp-*"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("RUN x", "template_error"),
        ("FROM minimal\nNONSENSE x", "template_error"),
        ("FROM minimal\nCOPY a /b", "template_error"),
        ("FROM minimal\nCOPY --from=minimal /nothing /b", "template_error"),
    ],
)
def test_wrong_dockerfiles(http, text, code):
    assert build(http, text, ok=False)[-1]["error"]["error_code"] == code


def test_build_that_plants_links_reaches_nothing_of_the_host(host, http, context, tmp_path_factory):
    """Both ways: writing through a planted link, and reading through one."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "precious").write_text("host's own")
    text = f"""
FROM minimal AS one
USER root
RUN mkdir -p /app && ln -s {outside}/precious /leak && ln -s {outside} /leakdir
FROM minimal
USER root
RUN mkdir -p {outside} && ln -s {outside} /target && ln -s ../../../../../../../..{outside} /up
COPY src/a.txt /target/precious
COPY src/a.txt /up/precious
RUN rm -rf /target /up
"""
    build(http, text, context=context, name="hostile")
    assert (outside / "precious").read_text() == "host's own"
    assert [p.name for p in outside.iterdir()] == ["precious"]
    for source in ("/leak", "/leakdir/precious"):
        steal = (
            text.split("FROM minimal\n", 1)[0]
            + f"FROM minimal AS two\nFROM minimal\nCOPY --from=one {source} /got\n"
        )
        events = build(http, steal, name="thief", ok=False)
        assert "host's own" not in text_of(events)


def test_host_authorities_stay_out_of_templates(http):
    build(http, "FROM minimal\nUSER root\nRUN env | grep -c CERT || true\n", name="plain")
    tree = http.get("/tupper/v1/templates").json()
    assert any(item["name"] == "plain" for item in tree)
    # Before its agent adds them again, the tree itself has none of the host's.
    digest = next(item["digest"] for item in tree if item["name"] == "plain")
    assert digest.startswith("sha256:")


def test_recipe_that_starts_from_another_template(host, http):
    recipe = host.paths.config / "templates" / "derived"
    (recipe / "files" / "etc").mkdir(parents=True)
    (recipe / "files" / "etc" / "motd").write_text("welcome\n")
    (recipe / "template.toml").write_text(
        'description = "x"\nfrom = "minimal"\ncommands = ["echo made > /etc/made"]\n'
        '[config]\nuser = "user"\nenv = { PATH = "/usr/bin:/bin" }\n'
    )
    assert inside(http, "cat /etc/motd /etc/made; id -un", name="derived").split() == [
        "welcome",
        "made",
        "user",
    ]
    assert host.leftovers() == []


def test_kill_9_during_a_build_leaves_nothing_after_the_next_start(host, http):
    text = "FROM minimal\nUSER root\nRUN echo started; sleep 60\n"
    with http.stream(
        "POST", "/tupper/v1/templates", json={"name": "cut", "dockerfile": text}
    ) as answer:
        for line in answer.iter_lines():
            if "started" in json.loads(line)["message"].split():
                break
        host.kill_9()
    host.start()
    assert host.leftovers() == []
    assert not list((host.paths.data / "build").glob("tmp-*"))
    assert str(host.paths.data / "build") not in Path("/proc/self/mountinfo").read_text()


def begin_steps(http, name, *steps, **base):
    """Begin a build of E2B's kind; the path of its status."""
    build_id = http.post("/v3/templates", json={"name": name}).json()["buildID"]
    listed = [{"type": kind, "args": list(args), "force": False} for kind, *args in steps]
    body = {**(base or {"fromTemplate": "minimal"}), "force": False, "steps": listed}
    answer = http.post(f"/v2/templates/{name}/builds/{build_id}", json=body)
    assert answer.status_code == 202, answer.text
    return f"/templates/{name}/builds/{build_id}/status"


def follow_steps(http, path, condition):
    """Follow a build until a condition holds of its status and all messages so far."""
    said = []
    deadline = time.monotonic() + 120
    while True:
        status = http.get(path, params={"logsOffset": len(said)}).json()
        said += [entry["message"] for entry in status["logEntries"]]
        if condition(status, said):
            return status
        assert time.monotonic() < deadline, (status, said)
        time.sleep(0.05)


def is_over(status, said):
    return status["status"] in ("ready", "error") and not status["logEntries"]


def test_steps_cut_off_by_kill_9_are_an_error_and_leave_nothing(host, http):
    done = begin_steps(http, "steps", ("RUN", "echo first > one"))
    assert follow_steps(http, done, is_over)["status"] == "ready"
    cut = begin_steps(http, "steps", ("RUN", "echo first > one"), ("RUN", "echo go; sleep 60"))
    follow_steps(http, cut, lambda _, said: "go" in said)
    host.kill_9()
    host.start()
    with host.client() as again:
        status = again.get(cut).json()
        assert (status["status"], status["reason"]["message"]) == (
            "error",
            "the background process ended during this build",
        )
        assert "go" in [entry["message"] for entry in status["logEntries"]]
        assert inside(again, "cat one", name="steps") == "first\n"
    assert host.leftovers() == []
    assert not list((host.paths.data / "build").glob("tmp-*"))


# Says once which start this was: a restored sandbox has the word of the one that was saved.
START = "head -c 16 /dev/urandom | md5sum > once; touch ready; exec sleep 100000"


@pytest.fixture
def starting(host, http):
    probes = {each["backend"]: each for each in http.get("/tupper/v1/doctor").json()["backends"]}
    if "snapshot" not in probes["gvisor"]["capabilities"]:
        pytest.skip("no snapshots on this host")
    build_id = http.post("/v3/templates", json={"name": "warm"}).json()["buildID"]
    body = {"fromTemplate": "minimal", "steps": [], "startCmd": START, "readyCmd": "test -e ready"}
    assert http.post(f"/v2/templates/warm/builds/{build_id}", json=body).status_code == 202
    path = f"/templates/warm/builds/{build_id}/status"
    assert follow_steps(http, path, is_over)["status"] == "ready"
    return "warm"


def begun(http, template, script="cat once", **body):
    """Make a sandbox; what a script says in it, which runs beside the start command."""
    made = http.post("/v2/sandboxes", json={"templateID": template, **body}).json()
    said = run(made, f"ps | grep -q '[s]leep 100000' && {script}")
    http.delete(f"/sandboxes/{made['sandboxID']}")
    return said


def test_the_next_ones_begin_where_the_first_was_ready(host, http, starting):
    first = begun(http, starting)
    assert len(first) == 36
    assert begun(http, starting) == first
    (kept,) = (host.paths.data / "warm").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    # What is fixed in a saved machine is not pretended.
    with_env = begun(http, starting, "cat once; echo $WORD", envVars={"WORD": "given"}).split()
    assert with_env[-1] == "given"
    assert with_env[0] not in first
    assert begun(http, starting, tupper={"memoryMiB": 512}) != first
    # They are nobody's copies: each has its own name and its own randomness.
    own = "hostname; head -c 16 /dev/urandom | md5sum"
    assert begun(http, starting, own).split() != begun(http, starting, own).split()
    assert [entry.name for entry in (host.paths.data / "warm").iterdir()] == [kept.name]
    host.kill_9()
    host.start()
    with host.client() as again:
        assert begun(again, starting) == first
        for file in kept.rglob("*"):
            if file.is_file() and file.name != "tupper.json":
                file.write_bytes(b"damaged")
        fresh = begun(again, starting)
        assert len(fresh) == 36
        assert fresh != first
        assert begun(again, starting) == fresh
        again.post("/tupper/v1/images/prune")
        assert list((host.paths.data / "warm").iterdir()) == []
    assert host.leftovers() == []


def image(host, path, *, shell):
    """A small image in a layout, with busybox or without any program."""
    layout = Layout(path)
    busybox = next((host.paths.data / "images" / "roots").glob("*/rootfs/bin/busybox"))
    items = [directory("etc"), Item("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")]
    items += [Item("etc/group", b"root:x:0:\n"), Item("etc/shadow", b"root:*:::::::\n")]
    if shell:
        items += [directory("bin"), Item("bin/busybox", busybox.read_bytes(), mode=0o755)]
        programs = "sh id mkdir chmod chown find env cat"
        items += [symlink(f"bin/{name}", "busybox") for name in programs.split()]
    config = {"Env": ["PATH=/bin", "FROM_IMAGE=yes"], "User": "0", "WorkingDir": "/srv"}
    return layout.publish(layout.image([items], config=config))


def test_steps_on_images(host, http, tmp_path):
    """Where there is a shell the user ``user`` is made; without one things can still be copied."""
    shelled = image(host, tmp_path / "shelled", shell=True)
    steps = [("ENV", "B", "$FROM_IMAGE-$HOME"), ("USER", "bob"), ("RUN", "id -un > /code/bob")]
    path = begin_steps(http, "shelled", *steps, ("USER", "user"), fromImage=shelled)
    assert follow_steps(http, path, is_over)["status"] == "ready"
    said = inside(http, "id -un; id -u; pwd; echo $B; cat /code/bob", name="shelled")
    assert said.split() == ["user", "1000", "/home/user", "yes-/home/user", "bob"]
    bare = image(host, tmp_path / "bare", shell=False)
    path = begin_steps(http, "bare", ("WORKDIR", "/made"), fromImage=bare)
    assert follow_steps(http, path, is_over)["status"] == "ready"
    path = begin_steps(http, "bare", ("RUN", "true"), fromImage=bare)
    status = follow_steps(http, path, is_over)
    assert (status["status"], status["reason"]["step"]) == ("error", "1")
