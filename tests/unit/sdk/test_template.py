"""Writing down a template: what would be sent, and what is refused before anything is."""

import inspect
import json
import tarfile
import traceback

import pytest

import tupper
from tupper.sdk._shared.builder import TemplateBuilder

# Parameters in order, as of e2b 2.63.0.
BUILD = (
    "template name alias tags cpu_count memory_mb min_free_disk_mb skip_cache on_build_logs opts"
)
CLASS = {
    "build": BUILD,
    "build_in_background": BUILD,
    "get_build_status": "build_info logs_offset opts",
    "exists": "name opts",
    "alias_exists": "alias opts",
    "assign_tags": "target_name tags opts",
    "remove_tags": "name tags opts",
    "get_tags": "template_id opts",
    "from_image": "self image username password",
    "from_template": "self template",
    "from_dockerfile": "self dockerfile_content_or_path",
    "from_aws_registry": "self image access_key_id secret_access_key region",
    "from_gcp_registry": "self image service_account_json",
    "to_json": "template",
    "to_dockerfile": "template",
}
STEPS = {
    "copy": "self src dest force_upload user mode resolve_symlinks gzip",
    "copy_items": "self items",
    "run_cmd": "self command user",
    "remove": "self path force recursive user",
    "rename": "self src dest force user",
    "make_dir": "self path mode user",
    "make_symlink": "self src dest user force",
    "pip_install": "self packages g",
    "npm_install": "self packages g dev",
    "bun_install": "self packages g dev",
    "apt_install": "self packages no_install_recommends fix_missing",
    "git_clone": "self url path branch depth user",
    "set_envs": "self envs",
    "set_start_cmd": "self start_cmd ready_cmd",
    "set_ready_cmd": "self ready_cmd",
}


def parameters(function):
    return " ".join(inspect.signature(function).parameters)


@pytest.mark.parametrize("kind", [tupper.Template, tupper.AsyncTemplate])
def test_signatures_are_e2bs(kind):
    found = {name: parameters(getattr(kind, name)) for name in CLASS}
    assert found == CLASS
    assert {name: parameters(getattr(TemplateBuilder, name)) for name in STEPS} == STEPS


@pytest.fixture
def context(tmp_path):
    (tmp_path / "app" / "deep").mkdir(parents=True)
    (tmp_path / "app" / "main.py").write_text("print()")
    (tmp_path / "app" / "deep" / "x.log").write_text("left out")
    (tmp_path / "app" / "link").symlink_to("main.py")
    (tmp_path / ".dockerignore").write_text("**/*.log\n")
    return tmp_path


def sent(template):
    return json.loads(tupper.Template.to_json(template))


APT = "apt-get update && DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y "


def test_what_is_sent(context):
    made = (
        tupper.Template(file_context_path=context)
        .from_python_image("3.12")
        .set_envs({"A": "1", "B": "$A"})
        .set_envs({})
        .apt_install(["vim", "git"], no_install_recommends=True)
        .pip_install("numpy")
        .pip_install(g=False)
        .npm_install("express", g=True)
        .remove(["/a b", "/c"], recursive=True, force=True)
        .make_dir("/d", mode=0o700, user="root")
        .skip_cache()
        .copy(["app", "app/*.py"], "/app/", user="user:www", mode=0o755)
        .git_clone("https://host/x.git", "/x", branch="main", depth=1)
        .set_start_cmd("python /app/main.py", tupper.wait_for_port(80))
    )
    body = sent(made)
    assert body["fromImage"] == "python:3.12"
    assert body["startCmd"] == "python /app/main.py"
    assert body["readyCmd"] == '[ -n "$(ss -Htuln sport = :80)" ]'
    steps = body["steps"]
    assert [(s["type"], *s["args"]) for s in steps] == [
        ("ENV", "A", "1", "B", "$A"),
        ("RUN", APT + "--no-install-recommends vim git", "root"),
        ("RUN", "pip install numpy", "root"),
        ("RUN", "pip install --user ."),
        ("RUN", "npm install -g express", "root"),
        ("RUN", "rm -r -f '/a b' /c"),
        ("RUN", "mkdir -p -m 0700 /d", "root"),
        ("COPY", "app", "/app/", "user:www", "0755"),
        ("COPY", "app/*.py", "/app/", "user:www", "0755"),
        ("RUN", "git clone https://host/x.git --branch main --single-branch --depth 1 /x"),
    ]  # fmt: skip
    assert [s["force"] for s in steps] == [False] * 7 + [True] * 3
    assert len({s["filesHash"] for s in steps if s["type"] == "COPY"}) == 2


def test_files_of_a_copy(context):
    draft = tupper.Template(context, ["app/link"]).from_base_image().copy("app", "/x").draft
    first = draft.hash_of(draft.instructions[0])
    with (
        draft.context.archive("app", follow=False, packed=True) as file,
        tarfile.open(fileobj=file) as archive,
    ):
        names = archive.getnames()
    assert names == ["app", "app/deep", "app/main.py"]
    (context / "app" / "main.py").write_text("print(1)")
    assert draft.hash_of(draft.instructions[0]) != first


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_a_source_outside_is_refused(context, path):
    with pytest.raises(tupper.TemplateException, match="Invalid source path"):
        tupper.Template(context).from_base_image().copy(path, "/x")


def test_a_failed_step_points_to_its_line():
    template = tupper.Template().from_base_image()
    template.run_cmd("one")
    template.run_cmd("two")
    (frame,) = traceback.extract_tb(template.draft.trace_of("2"))
    assert frame.line == 'template.run_cmd("two")'
    assert template.draft.trace_of("7") is None


DOCKERFILE = """
FROM python:3.12 AS one
ARG V=2
ENV A=$V
WORKDIR /app
COPY --chown=user --chmod=644 app /app/
RUN ["echo", "a b"]
RUN echo $A
ENTRYPOINT ["python"]
CMD ["main.py"]
"""


def test_from_a_dockerfile(context):
    body = sent(tupper.Template(context).from_dockerfile(DOCKERFILE))
    assert body["fromImage"] == "python:3.12"
    assert [(s["type"], *s["args"]) for s in body["steps"]] == [
        ("USER", "root"),
        ("WORKDIR", "/"),
        ("ENV", "V", "2"),
        ("ENV", "A", "2"),
        ("WORKDIR", "/app"),
        ("COPY", "app", "/app/", "user", "0644"),
        ("RUN", "echo 'a b'"),
        ("RUN", "echo $A"),
        ("USER", "user"),
    ]
    assert (body["startCmd"], body["readyCmd"]) == ("python main.py", "sleep 20")
    with pytest.raises(tupper.TemplateException, match="Multi-stage"):
        tupper.Template().from_dockerfile("FROM a\nFROM b\n")
    with pytest.raises(tupper.TemplateException, match="line 2"):
        tupper.Template().from_dockerfile("FROM a\nCOPY --from=b /x /y\n")


def test_to_a_dockerfile():
    made = tupper.Template().from_image("alpine").set_envs({"A": "1"}).run_cmd("true", user="root")
    text = tupper.Template.to_dockerfile(made.set_start_cmd("run", tupper.wait_for_file("/x y")))
    assert text == "FROM alpine\nENV A=1\nRUN true\nENTRYPOINT run\n"
    with pytest.raises(ValueError, match="another template"):
        tupper.Template.to_dockerfile(tupper.Template().from_template("base"))
