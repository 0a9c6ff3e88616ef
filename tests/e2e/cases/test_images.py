"""Images in a running sandbox: what the image says is what the processes see."""

import subprocess

import pytest

from tupper import SandboxException


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """An OCI layout made with umoci: busybox, users, and a configuration to honour."""
    root = tmp_path_factory.mktemp("image")
    target = root / "layout"
    bundle = root / "bundle"

    def umoci(*argv):
        subprocess.run(["umoci", *argv], check=True, capture_output=True, timeout=60)

    umoci("init", "--layout", str(target))
    umoci("new", "--image", f"{target}:v1")
    umoci("unpack", "--image", f"{target}:v1", str(bundle))
    rootfs = bundle / "rootfs"
    (rootfs / "bin").mkdir()
    (rootfs / "etc").mkdir()
    (rootfs / "srv" / "app").mkdir(parents=True)
    (rootfs / "tmp").mkdir(mode=0o1777)
    subprocess.run(["cp", "/bin/busybox", str(rootfs / "bin" / "busybox")], check=True)
    for applet in ("sh", "id", "pwd", "echo", "cat", "ls", "sleep", "env"):
        (rootfs / "bin" / applet).symlink_to("busybox")
    (rootfs / "etc" / "passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nnode:x:1001:1001::/srv:/bin/sh\n"
    )
    (rootfs / "etc" / "group").write_text("root:x:0:\nnode:x:1001:\nextra:x:1002:node\n")
    (rootfs / "etc" / "resolv.conf").symlink_to("../run/systemd/resolve/stub-resolv.conf")
    umoci("repack", "--image", f"{target}:v1", str(bundle))
    umoci(
        "config", "--image", f"{target}:v1", "--config.env", "A=1",
        "--config.env", "PATH=/opt/b:/bin", "--config.user", "node:node",
        "--config.workingdir", "/srv/app", "--config.entrypoint", "/ep", "--config.cmd", "x",
    )  # fmt: skip
    return f"oci:{target}:v1"


def test_tb051_env_user_and_directory_of_the_image(make, layout):
    sandbox = make(image=layout)
    result = sandbox.commands.run('id; pwd; echo "$A $PATH"')
    identity, directory, environment = result.stdout.splitlines()
    assert identity.startswith("uid=1001(node) gid=1001(node)")
    assert directory == "/srv/app"
    assert environment == "1 /opt/b:/bin"


@pytest.mark.parametrize(
    ("user", "identity"),
    [("1234", "uid=1234"), ("0:1001", "uid=0(root) gid=1001(node)"), ("node", "1002(extra)")],
)
def test_tb051_every_form_of_user(make, layout, user, identity):
    sandbox = make(image=layout, user=user)
    assert identity in sandbox.commands.run("id").stdout


def test_tb035_a_dangling_resolv_conf(make, layout):
    sandbox = make(image=layout)
    assert "nameserver" in sandbox.commands.run("cat /etc/resolv.conf").stdout


def test_unknown_images_are_typed(make, tmp_path):
    with pytest.raises(SandboxException, match="no-such"):
        make(image="127.0.0.1:1/no-such:latest")
    with pytest.raises(SandboxException):
        make(image=f"oci:{tmp_path}/nothing")
