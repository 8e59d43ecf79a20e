"""Attempts of a command to leave the sandbox: each is refused or contained."""

import asyncio
import os
import socket
import tempfile
import time
from pathlib import Path

import pytest
from local_servers import SECRET, local_server, secret

from everturn.commands import CommandLimits
from everturn_activities.sandbox import probe

pytestmark = pytest.mark.skipif(not probe().available, reason=str(probe().reason))

MIB = 1 << 20
SMALL = CommandLimits(
    memory_bytes=128 * MIB, processes=64, disk_bytes=32 * MIB, scratch_bytes=4 * MIB, seconds=8
)


@pytest.mark.parametrize(
    "command",
    [
        "cat {secret}",
        "cat ../secret.txt",
        "cat /work/../secret.txt",
        "ln -s {secret} in; cat in",
        "ln {secret} in; cat in",
        "mkdir d; ln -s ../../secret.txt d/in; cat d/in",
        "cat /proc/1/root{secret}",
        "cat /proc/self/root{secret}",
        "cat /proc/*/root{secret}",
        "cat /proc/self/cwd/../secret.txt",
        "cat /proc/1/environ /proc/*/environ",
        "env; set; cat /proc/self/environ",
        "cat /proc/*/cmdline | tr '\\0' '\\n' | grep -a canary-",
        "ls /proc/self/fd/; for f in /proc/self/fd/*; do timeout 0.1 cat $f; done",
        "find / -xdev -name secret.txt -exec cat {{}} +",
        "cat /etc/shadow /etc/passwd /root/.ssh/id_rsa /home/*/.ssh/*",
        "cat /dev/mem /dev/kmem /dev/sda /dev/vda",
        "cat /sys/kernel/debug/* /sys/class/net/*/address",
        "mount --bind / /tmp; cat /tmp{secret}",
        "mount -t proc proc /proc; cat /proc/1/root{secret}",
        "unshare -Ur cat {secret}",
        "unshare -Urm sh -c 'mount -t proc p /proc; cat /proc/1/root{secret}'",
        "nsenter -t 1 -m cat {secret}",
        "nsenter --mount=/proc/1/ns/mnt cat {secret}",
        "chroot / cat {secret}",
        "setpriv --reuid=0 --inh-caps=+all cat {secret}",
        "su -c 'cat {secret}'; sudo cat {secret}",
        "mknod /tmp/d b 254 0; cat /tmp/d",
        "bwrap --bind / / cat {secret}",
        "python3 -c \"import os; d = os.open('/', os.O_RDONLY); os.chdir('..');"
        " print(open('{secret}').read())\"",
    ],
)
async def test_no_command_reads_what_is_not_in_its_folder(call, outside, monkeypatch, command):
    monkeypatch.setenv("EVERTURN_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)

    result = await call(
        "run_command", {"command": command.format(secret=outside)}, command_limits=SMALL
    )

    assert SECRET not in result.text
    assert outside.read_text() == SECRET


@pytest.mark.parametrize(
    "command",
    [
        "echo x > {secret}",
        "echo x > ../secret.txt",
        "ln -s {secret} in; echo x > in",
        "rm -rf {secret} ../secret.txt; rm -rf /work/..",
        "mv /work /tmp/",
        "touch /usr/bin/x /etc/x /bin/x /lib/x /x /dev/x /proc/x /sys/x",
        "echo x > /proc/sys/kernel/core_pattern; echo x > /proc/sysrq-trigger",
        "echo 0 > /proc/sys/kernel/randomize_va_space",
        "mount -o remount,rw /; mount -o remount,rw /usr; echo x > /usr/x",
        "kill -9 1; kill -9 -1",
        "kill -9 {worker}",
        "renice -20 -p $$; ulimit -Hn 99999; prlimit --pid $$ --nproc=unlimited",
        "hostname elsewhere; date -s 2001-01-01; swapoff -a; reboot -f",
    ],
)
async def test_no_command_changes_what_is_not_in_its_folder(call, folder, outside, command):
    before = {name: os.lstat(f"/{name}").st_mtime_ns for name in ("usr", "etc", "bin", "sys")}
    worker = os.getpid()

    await call(
        "run_command",
        {"command": command.format(secret=outside, worker=worker)},
        command_limits=SMALL,
    )

    assert outside.read_text() == SECRET
    assert folder.is_dir()
    assert before == {name: os.lstat(f"/{name}").st_mtime_ns for name in before}
    assert socket.gethostname() != "elsewhere"
    assert time.localtime().tm_year > 2001


@pytest.mark.parametrize(
    "command",
    [
        "curl -sS -m 2 http://127.0.0.1:{port}/",
        "curl -sS -m 2 http://localhost:{port}/",
        "curl -sS -m 2 http://[::ffff:127.0.0.1]:{port}/",
        "curl -sS -m 2 http://{here}:{port}/",
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello >&3; cat <&3'",
        "python3 -c \"import socket; s = socket.create_connection(('127.0.0.1', {port}), 2);"
        " s.send(b'hello\\n\\n'); print(s.recv(999))\"",
        'python3 -c "import socket; s = socket.socket(socket.AF_UNIX);'
        " s.connect('\\0{name}'); s.send(b'hello\\n\\n'); print(s.recv(999))\"",
        'python3 -c "import socket; s = socket.socket(socket.AF_UNIX);'
        " s.connect('{path}'); s.send(b'hello\\n\\n'); print(s.recv(999))\"",
        'python3 -c "import socket; s = socket.socket(socket.AF_VSOCK); s.settimeout(1);'
        ' s.connect((2, {port}))"',
        "ip link set lo up; ip route add default dev lo; curl -sS -m 2 http://127.0.0.1:{port}/",
        "nslookup -timeout=1 canary.example 1.1.1.1; getent hosts canary.example",
    ],
)
@pytest.mark.parametrize("listed", [None, ("elsewhere.example",)], ids=["none", "another"])
async def test_no_command_reaches_a_server_of_this_machine(call, command, listed):
    name = f"everturn-{os.getpid()}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "s"
        came: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(await reader.readline())
            await secret(writer)
            writer.close()

        servers = [await asyncio.start_unix_server(serve, at) for at in ("\0" + name, path)]
        async with local_server(host="0.0.0.0") as server:
            attempt = command.format(
                port=server.port, name=name, path=path, here=socket.gethostname()
            )
            result = await call(
                "run_command",
                {"command": attempt},
                command_limits=SMALL,
                allowed_hosts=listed,
            )
        for each in servers:
            each.close()

    assert server.came == came == []
    assert SECRET not in result.text


@pytest.mark.parametrize(
    ("command", "arrives"),
    [
        ("curl -sS http://127.0.0.1:{port}/a", True),
        ("curl -sSp http://127.0.0.1:{port}/a", True),
        ("curl -sS http://127.0.0.1:{other}/a", False),
        ("curl -sSp http://127.0.0.1:{other}/a", False),
        ("curl -sS -H 'Host: 127.0.0.1:{port}' http://127.0.0.1:{other}/a", False),
        ("curl -sS --noproxy '*' http://127.0.0.1:{other}/a", False),
        ("curl -sS http://2130706433:{other}/a", False),
        ("curl -sS http://127.0.0.1:{port}@127.0.0.1:{other}/a", False),
        ("printf 'CONNECT 127.0.0.1:{other} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n' | "
         "curl -sS -m 1 --noproxy '*' telnet://127.0.0.1:3128", False),
        ("printf 'GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
         "GET http://127.0.0.1:{other}/ HTTP/1.1\\r\\n\\r\\n' | "
         "curl -sS -m 1 --noproxy '*' telnet://127.0.0.1:3128", True),
        ("head -c 100000 /dev/zero | curl -sS -m 1 --noproxy '*' telnet://127.0.0.1:3128", False),
    ],
)  # fmt: skip
async def test_a_command_reaches_the_allowed_host_and_no_other(call, command, arrives):
    async with local_server() as server, local_server() as other:
        result = await call(
            "run_command",
            {"command": command.format(port=server.port, other=other.port)},
            allowed_hosts=(f"127.0.0.1:{server.port}",),
            command_limits=SMALL,
        )

    assert other.came == []
    assert bool(server.came) == arrives
    assert (SECRET in result.text) == arrives


@pytest.mark.parametrize(
    "command",
    [
        # Bounded by itself too: a test must not be what brings a machine down.
        "for i in $(seq 400); do sleep 8 & done; wait",
        "python3 -c 'import os, time\nfor i in range(9): os.fork()\ntime.sleep(8)'",
        "python3 -c 'x = []\nwhile len(x) < 40: x.append(bytearray(16 << 20))'",
        "python3 -c 'import mmap, time; m = mmap.mmap(-1, 600 << 20)\n"
        "for i in range(0, 600 << 20, 4096): m[i] = 1\ntime.sleep(8)'",
        # Slower than the watch looks: a quick disk would take as much between two looks.
        "for i in $(seq 60); do head -c 8000000 /dev/zero > f$i; sleep 0.05; done; sleep 8",
        "head -c 100000000 /dev/zero > /tmp/x || head -c 100000000 /dev/zero > /dev/shm/x",
        "fallocate -l 2000000000 big",
        "(while :; do :; done) & (while :; do :; done) & wait",
        "yes | head -c 50000000",
        "setsid sleep 300 & disown; nohup sleep 300 & exit 0",
        "trap '' TERM INT HUP; while :; do sleep 1; done",
    ],
    ids=[
        *("processes", "forks", "memory", "shared-memory", "files", "scratch", "one-file"),
        *("processors", "output", "left-behind", "deaf"),
    ],
)
async def test_no_command_takes_more_than_its_limits(call, folder, command):
    limits = SMALL.model_copy(update={"seconds": 1.5, "cpu_seconds": 2, "file_bytes": 16 * MIB})
    before = set(processes())

    async with asyncio.timeout(15):
        result = await call("run_command", {"command": command}, command_limits=limits)

    taken = sum(path.lstat().st_size for path in folder.rglob("*"))
    assert taken < 128 * MIB
    assert len(result.text) < 70_000
    while left := {pid for pid in set(processes()) - before if is_ours(pid, folder)}:
        assert left
        await asyncio.sleep(0.02)


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_ours(pid: int, folder: Path) -> bool:
    """Whether the process works in the folder, in whatever namespace."""
    try:
        return f"/{folder.name}" in Path(f"/proc/{pid}/mountinfo").read_text() and (
            str(folder) in Path(f"/proc/{pid}/mountinfo").read_text()
        )
    except OSError:
        return False
