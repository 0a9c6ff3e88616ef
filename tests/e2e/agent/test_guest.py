"""What users do in a guest that only the agent and the backend together make work."""

import threading

import pytest

from tupper import CommandExitException, Sandbox


def test_programs_that_the_guest_wrote_can_run(sandbox):
    assert sandbox.commands.run("cp /bin/true ~/t && ~/t && echo ran").stdout == "ran\n"
    with open("/bin/true", "rb") as program:
        content = program.read()
    sandbox.files.write("uploaded", content)
    assert sandbox.commands.run(
        "chmod +x ~/uploaded && file_size=$(stat -c %s uploaded); echo $file_size"
    ).stdout == (f"{len(content)}\n")


def test_libraries_that_the_guest_wrote_can_be_loaded(sandbox):
    script = (
        "cp $(ls /usr/lib/*/libm.so.6 | head -1) /tmp/libmine.so && "
        "python3 -c 'import ctypes; print(ctypes.CDLL(\"/tmp/libmine.so\").abs(-3))'"
    )
    assert sandbox.commands.run(script).stdout == "3\n"


def test_a_client_that_vanishes_in_an_upload_leaves_nothing(sandbox):
    begun = threading.Event()

    def broken():
        yield b"x" * (1 << 20)
        begun.set()
        raise ConnectionError("gone")

    class Half:
        def __init__(self):
            self._parts = broken()

        def read(self, size=-1):
            del size
            return next(self._parts)

    with pytest.raises(ConnectionError):
        sandbox.files.write("/tmp/half", Half())
    assert begun.is_set()
    gone = "for i in $(seq 100); do [ -e /tmp/half ] || break; sleep 0.1; done; [ ! -e /tmp/half ] && echo gone"
    assert sandbox.commands.run(gone).stdout == "gone\n"


def test_sudo_keeps_the_umask_and_refuses_to_edit(sandbox):
    script = (
        "umask 077; cd /tmp; rm -f made; sudo touch made; stat -c %a made; sudo -u user sh -c umask"
    )
    assert sandbox.commands.run(script).stdout == "600\n0077\n"
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("sudo -e /etc/hosts")
    assert "not supported" in caught.value.stderr


def test_sudo_of_the_image_is_the_agents(sandbox):
    assert sandbox.commands.run("sudo -n id -u; /usr/bin/sudo id -u").stdout == "0\n0\n"
    assert sandbox.commands.run("echo in | sudo cat; sudo sh -c 'exit 7' || echo $?").stdout == (
        "in\n7\n"
    )


def test_an_image_without_bash():
    with Sandbox.create("minimal", timeout=300) as sandbox:
        assert sandbox.commands.run("echo $((1+1))").stdout == "2\n"
