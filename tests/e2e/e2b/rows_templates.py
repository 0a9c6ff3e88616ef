"""Templates: built, named, started from. Rows of the checklist; see ``rows``."""

import json
import os
import tempfile
from pathlib import Path

from rows_common import NotHere, dear, new_name, row


def _builder(w, **options):
    if not hasattr(w.sdk, "Template"):
        raise NotHere("no Template")
    return (w.sdk.AsyncTemplate if w.is_async else w.sdk.Template)(**options)


def _context():
    """A directory with what COPY needs."""
    place = Path(tempfile.mkdtemp(prefix="rows-"))
    (place / "site" / "sub").mkdir(parents=True)
    (place / "site" / "hello.txt").write_text("hello")
    (place / "site" / "sub" / "deep.txt").write_text("deep")
    os.symlink("hello.txt", place / "site" / "link.txt")
    (place / "ignored.txt").write_text("not in there")
    (place / ".dockerignore").write_text("ignored.txt\n")
    return place


@dear
@row
def row_templates_build_and_start(w):
    name, lines = new_name(), []
    template = (
        _builder(w, file_context_path=str(_context()))
        .from_template("minimal")
        .set_envs({"GREETING": "hello", "BOTH": "$GREETING-$HOME"})
        .set_workdir("/code/app")
        .run_cmd('echo "$BOTH" > env.txt && id -un > who.txt')
        .run_cmd("id -un > /code/root.txt", user="root")
        .copy("site", "/code/site")
        .copy("site/hello.txt", "renamed.txt", mode=0o600)
        .copy("site/*", "globbed")
        .set_start_cmd(
            "httpd -f -p 8000 -h /code/site",
            "wget -q -O /dev/null http://127.0.0.1:8000/hello.txt",
        )
    )
    info = w.Template.build(
        template,
        f"{name}:v1",
        tags=["stable"],
        memory_mb=300,
        on_build_logs=lambda line: lines.append(line.message),
    )
    assert (info.name, sorted(info.tags)) == (f"{name}:v1", ["stable", "v1"])
    assert any("RUN id -un > /code/root.txt" in line for line in lines)
    made = w.create(f"{name}:v1")
    shown = made.commands.run(
        "id -un; pwd; echo $GREETING; cat env.txt who.txt /code/root.txt renamed.txt; echo;"
        " stat -c %a renamed.txt; cat globbed/sub/deep.txt; echo; readlink globbed/link.txt;"
        " wget -q -O - http://127.0.0.1:8000/sub/deep.txt"
    ).stdout
    assert shown.split() == [
        *("user", "/code/app", "hello", "hello-/home/user", "user", "root", "hello"),
        *("600", "deep", "hello.txt", "deep"),
    ]
    assert made.get_info().memory_mb == 300
    by_build = w.create(f"{name}:{info.build_id}")
    assert by_build.commands.run("cat root.txt", cwd="/code").stdout == "root\n"
    assert by_build.get_info().memory_mb == 300
    unknown = f"{name}:00000000-0000-4000-8000-000000000000"
    w.raises("SandboxException", lambda: w.create(unknown), "00000000")
    _tags(w, name)


def _tags(w, name):
    """Names and tags of what was just built."""
    assert w.Template.exists(f"{name}:v1") is True
    assert w.Template.exists(name) is False
    assert w.Template.exists("base") is True
    assert w.Template.exists(new_name()) is False
    assert w.Template.assign_tags(f"{name}:v1", ["production", "default"]).tags
    tags = {each.tag: each.build_id for each in w.Template.get_tags(name)}
    assert sorted(tags) == ["default", "production", "stable", "v1"]
    assert len(set(tags.values())) == 1
    assert w.Template.exists(name) is True
    w.Template.remove_tags(name, "production")
    assert w.Template.exists(f"{name}:production") is False
    w.raises("TemplateException", lambda: w.Template.remove_tags(name, "default"))
    w.raises("TemplateException", lambda: w.Template.get_tags(new_name()))
    w.raises("SandboxException", lambda: w.create(f"{name}:production"), "production")


@dear
@row
def row_templates_in_background_and_failed(w):
    template = _builder(w).from_template("minimal").run_cmd("true")
    template = template.run_cmd("echo some words; exit 7")
    info = w.Template.build_in_background(template, new_name())
    assert w.Template.get_build_status(info).status.value == "building"
    seen = []

    def over():
        status = w.Template.get_build_status(info, logs_offset=len(seen))
        seen.extend(line.message for line in status.log_entries)
        return status if status.status.value != "building" else None

    status = w.wait_for(over, 60)
    assert (status.status.value, status.reason.step) == ("error", "2")
    assert "exit status 7" in status.reason.message
    assert "some words" in seen
    failing = _builder(w).from_template("minimal").set_start_cmd("exit 3", "false")
    w.raises("BuildException", lambda: w.Template.build(failing, new_name()), "status 3")
    unknown = _builder(w).from_template("no-such-template")
    w.raises("BuildException", lambda: w.Template.build(unknown, new_name()), "no-such-template")


@row
def row_templates_what_is_sent(w):
    """All that only writes down: the same steps from every SDK."""
    context = str(_context())
    kind = type(_builder(w, file_context_path=context))
    made = (
        _builder(w, file_context_path=context)
        .from_python_image("3.12")
        .copy_items([{"src": "site/hello.txt", "dest": "/a/", "mode": 0o644}])
        .remove(["/a b", "/c"], force=True, recursive=True)
        .rename("/x", "/y", user="root")
        .make_dir("/d", mode=0o700)
        .make_symlink("/a", "/b", force=True)
        .pip_install("numpy")
        .npm_install("express", g=True)
        .bun_install("tsx")
        .apt_install(["vim"])
        .git_clone("https://host/x.git", "/x", branch="main", depth=1)
        .set_user("bob")
        .set_workdir("/w")
        .skip_cache()
        .run_cmd("true")
        .set_ready_cmd(w.sdk.wait_for_port(80))
    )
    body = json.loads(kind.to_json(made))
    assert (body["fromImage"], body["force"]) == ("python:3.12", False)
    steps = [(step["type"], *step["args"]) for step in body["steps"]]
    assert steps[0] == ("COPY", "site/hello.txt", "/a/", "", "0644")
    assert len(body["steps"][0]["filesHash"]) == 64
    assert steps[1][1] == "rm -r -f '/a b' /c"
    assert [step[0] for step in steps].count("RUN") == 10
    assert [step["force"] for step in body["steps"]][-2:] == [False, True]
    assert body["readyCmd"] == '[ -n "$(ss -Htuln sport = :80)" ]'
    text = kind.to_dockerfile(made)
    assert text.startswith("FROM python:3.12\nCOPY site/hello.txt /a/\nRUN rm -r -f")
    images = {
        "debian": "debian:stable", "ubuntu": "ubuntu:latest", "node": "node:lts",
        "bun": "oven/bun:latest",
    }  # fmt: skip
    for name, image in images.items():
        template = getattr(_builder(w), f"from_{name}_image")()
        assert json.loads(kind.to_json(template))["fromImage"] == image
    base = _builder(w).from_base_image().run_cmd("true")
    assert json.loads(kind.to_json(base))["fromImage"] == "e2bdev/base"
    written = _builder(w).from_dockerfile("FROM alpine\nRUN echo hi\nENV A=1\n")
    kinds = [step["type"] for step in json.loads(kind.to_json(written))["steps"]]
    assert kinds == ["USER", "WORKDIR", "RUN", "ENV", "USER", "WORKDIR"]
    w.raises("Exception", lambda: _builder(w).from_base_image().copy("/etc", "/x"))
