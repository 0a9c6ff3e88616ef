"""What users meet on gVisor."""

import stat

import pytest

from e2e.cases.waiting import wait_for
from tupper import FilesystemEventType

SQLITE = """
import os, sqlite3, sys
path = '/home/user/wal.db'
db = sqlite3.connect(path, timeout=60)
db.execute('pragma journal_mode=wal'); db.execute('create table if not exists t (x)'); db.commit()
children = []
for writer in range(4):
    pid = os.fork()
    if pid == 0:
        mine = sqlite3.connect(path, timeout=60)
        for row in range(50):
            mine.execute('insert into t values (?)', (row,)); mine.commit()
        os._exit(0)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
print(db.execute('select count(*) from t').fetchone()[0], db.execute('pragma integrity_check').fetchone()[0])
"""

BITS = """
import os, stat
def tried(call, *words):
    try: call(*words)
    except OSError: pass
for name, mode in (('u', 0o4755), ('g', 0o2755), ('usual', 0o751)):
    with open(name, 'w') as file:
        tried(os.fchmod, file.fileno(), mode)
    tried(os.chmod, name, mode)
tried(os.open, 'opened', os.O_CREAT | os.O_WRONLY, 0o4755)
tried(os.mkdir, 'dir', 0o6755)
tried(os.mknod, 'node', stat.S_IFREG | 0o4755)
tried(os.mknod, 'disk', stat.S_IFBLK | 0o600, os.makedev(7, 0))
tried(os.mknod, 'null', stat.S_IFCHR | 0o600, os.makedev(1, 3))
tried(os.mkfifo, 'fifo')
"""

LOCKS = """
import fcntl, os, struct
f = open('/tmp/lock', 'w')
fcntl.flock(f, fcntl.LOCK_EX)
g = open('/tmp/lock2', 'w'); fcntl.lockf(g, fcntl.LOCK_EX)
pid = os.fork()
if pid == 0:
    query = struct.pack('hhqqi', fcntl.F_WRLCK, 0, 0, 0, 0)
    kind = struct.unpack('hhqqi', fcntl.fcntl(open('/tmp/lock2', 'r+'), fcntl.F_GETLK, query))[0]
    try:
        fcntl.flock(open('/tmp/lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB); busy = False
    except BlockingIOError:
        busy = True
    print(kind == fcntl.F_WRLCK, busy, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_tb115_sqlite_with_four_writers(sbx):
    sbx.files.write("/tmp/wal.py", SQLITE)
    assert (
        sbx.commands.run("rm -f ~/wal.db*; python3 /tmp/wal.py", timeout=120).stdout == "200 ok\n"
    )


def test_tb115_file_locks(sbx):
    sbx.files.write("/tmp/locks.py", LOCKS)
    assert sbx.commands.run("python3 /tmp/locks.py").stdout == "True True\n"


def test_tb115_watch_events_for_writes_of_the_api(sbx):
    sbx.files.make_dir("/tmp/w115")
    handle = sbx.files.watch_dir("/tmp/w115")
    sbx.files.write("/tmp/w115/f", "x")
    events = []
    wait_for(lambda: events.extend(handle.get_new_events()) or events)
    assert FilesystemEventType.WRITE in {event.type for event in events}
    handle.stop()


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("touch -d @0 /tmp/t && stat -c %Y /tmp/t", "0\n"),
        ("ls -l /etc/hostname | wc -l", "1\n"),
        ("stat -c %F /etc", "directory\n"),
        (
            (
                "cd /tmp && rm -rf g h && git init -q g && git -C g -c user.name=a -c user.email=a@b "
                "commit -q --allow-empty -m x && git clone -q --local g h && git -C h log --oneline | wc -l"
            ),
            "1\n",
        ),
        (
            (
                "mkdir -p /tmp/many && cd /tmp/many && for d in $(seq 100); do mkdir $d; "
                "(cd $d; seq 200 | xargs touch); done; find . -type f | wc -l; cd /; rm -r /tmp/many"
            ),
            "20000\n",
        ),
    ],
)
def test_tb115_everyday_tools(sbx, script, output):
    assert sbx.commands.run(script, timeout=120).stdout == output


def test_a_guest_leaves_nothing_in_a_mount_that_has_its_owners_rights(make, tmp_path):
    sandbox = make(backend="gvisor", user="root", mounts=[f"{tmp_path}:/mnt"])
    sandbox.files.write("/root/script.py", BITS)
    sandbox.commands.run("cd /mnt && python3 /root/script.py; cp -p $(command -v su) .")
    sandbox.kill()
    left = {path.name: path.lstat().st_mode for path in tmp_path.iterdir()}
    assert stat.S_IMODE(left["usual"]) == 0o751
    assert {"u", "g", "su", "dir"} <= left.keys()
    assert [name for name, mode in left.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []
    kinds = {name for name, mode in left.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))}
    assert kinds == set()
