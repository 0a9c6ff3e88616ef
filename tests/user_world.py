"""A world in which an ordinary user can have sandboxes, made by root, that leaves the host as it is.

The user exists only in copies of ``/etc/passwd`` and its neighbours, which are bound over the real
ones in a mount namespace of the test, as is a ``/dev/net/tun`` that everybody may open.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

UID = 54987
NAME = "tupperuser"
ROOT = Path(__file__).parents[1]
_PYTHON = "/usr/bin/python3"  # the one of the tests may lie where only root can read
_NEEDED = ("unshare", "setpriv", "newuidmap", "newgidmap", "pasta", "nft", "ip", "mmdebstrap")

_SCRIPT = """
set -e
etc=$1 uid=$2 name=$3 tun=$4 ranges=$5; shift 5
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$etc"
cp /etc/passwd /etc/group "$etc"
echo "$name:x:$uid:$uid::/nonexistent:/bin/sh" >>"$etc/passwd"
echo "$name:x:$uid:" >>"$etc/group"
: >"$etc/subuid"
if [ "$ranges" = yes ]; then echo "$name:5000000:65536" >"$etc/subuid"; fi
cp "$etc/subuid" "$etc/subgid"
for f in passwd group subuid subgid; do mount --bind "$etc/$f" "/etc/$f"; done
mknod "$etc/tun" c 10 200
if [ "$tun" = yes ]; then chmod 666 "$etc/tun"; else chmod 600 "$etc/tun"; fi
mount --bind "$etc/tun" /dev/net/tun
exec setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all --bounding-set=+all "$@"
"""


def why_not():
    """Why there can be no such world here; empty if there can."""
    if os.geteuid():
        return "making an ordinary user's world needs root"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    if missing := [name for name in _NEEDED if not shutil.which(name, path=path)]:
        return f"not installed: {', '.join(missing)}"
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    said = subprocess.run([_PYTHON, "--version"], capture_output=True, text=True, check=False)
    if not said.stdout.startswith(f"Python {wanted}."):
        return f"{_PYTHON} is not Python {wanted}"
    if not Path("/dev/net/tun").exists():
        return "the kernel has no /dev/net/tun"
    return ""


class UserWorld:
    """Runs programs as the user.

    Args:
        top: the directory of all that is the user's; kept if it is there. Short: paths of sockets.
        tun: whether ``/dev/net/tun`` can be opened.
        ranges: whether the user has subordinate ids.
    """

    def __init__(self, top, *, tun=True, ranges=True):
        self.top = Path(top)
        self.tun, self.ranges = tun, ranges
        self.home = self.top / "home"
        self.code = self.top / "code"
        self.python = self.top / "venv" / "bin" / "python"
        self.top.mkdir(mode=0o711, exist_ok=True)
        self.top.chmod(0o711)
        if not self.home.exists():
            self.home.mkdir(mode=0o700)
            os.chown(self.home, UID, UID)

    def install(self):
        """Copy the code to where the user can read it; the packages it needs stay where they are."""
        ignore = shutil.ignore_patterns("__pycache__", ".venv", ".git")
        for name in ("src", "tests", "templates"):
            shutil.copytree(
                ROOT / name, self.code / name, ignore=ignore, symlinks=True, dirs_exist_ok=True
            )
        shutil.copy(ROOT / "pyproject.toml", self.code)
        subprocess.run([_PYTHON, "-m", "venv", "--without-pip", str(self.top / "venv")], check=True)
        places = [self.code / "src", self.code / "tests", sysconfig.get_path("purelib")]
        [site] = (self.top / "venv" / "lib").glob("python3*/site-packages")
        (site / "world.pth").write_text("".join(f"{place}\n" for place in places))

    def env(self, **more):
        """The whole environment of a program of the user."""
        keep = ("PATH", "LANG", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
        env = {name: os.environ[name] for name in keep if name in os.environ}
        return env | {"HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"} | more

    def command(self, *argv):
        """What root runs to run ``argv`` as the user."""
        etc = self.top / "etc"
        etc.mkdir(exist_ok=True)
        words = [str(etc), str(UID), NAME, "yes" if self.tun else "no"]
        words.append("yes" if self.ranges else "no")
        return ["unshare", "-m", "sh", "-c", _SCRIPT, "sh", *words, *map(str, argv)]

    def run(self, *argv, timeout_s=600, check=True, **more):
        """Run a program to its end; its completed process, output as text."""
        done = subprocess.run(
            self.command(*argv), env=self.env(**more), cwd=self.home, capture_output=True,
            text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done

    def remove(self):
        """End what still runs and remove all files."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.top, ignore_errors=True)

    def processes(self):
        """This world's processes, those of subordinate ids included: pid → command line."""
        found, word = {}, str(self.top).encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    uid = entry.stat().st_uid
                    line = (entry / "cmdline").read_bytes()
                    said = line + (entry / "environ").read_bytes()
                except OSError:
                    continue
                if word in said and (uid == UID or 5000000 <= uid < 5065536):
                    found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace")
        return found


def temporary_world(**options):
    """A world in a new directory below ``/tmp``."""
    return UserWorld(tempfile.mkdtemp(prefix="tu-", dir="/tmp"), **options)
