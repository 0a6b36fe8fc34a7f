from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from hangwatch.model import Socket
from hangwatch_agent.capture.proc import sockets
from tests.unit.agent.capture.made_up import process

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LISTENS = (
    "   0: 00000000:7148 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0\n"
)
STUCK = (
    "   1: 0100007F:8A2C 0200A8C0:7148 01 00001F40:00000000 01:00000014 00000006     0        0 222 2 0 20 4 30 10 -1\n"
)
SIX = (
    "   0: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000001000000:7148 08"
    " 00000000:00000003 00:00000000 00000000     0        0 333 1 0\n"
)
TIME_WAIT = "   2: 0100007F:0001 0200A8C0:7148 06 00000000:00000000 00:00000000 00000000     0        0 0 2 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = process(tmp_path, 5)
    (folder / "net").mkdir()
    (folder / "net/tcp").write_text(HEAD + LISTENS + STUCK + TIME_WAIT + "   3: torn li")
    (folder / "net/tcp6").write_text(HEAD + SIX)
    for fd, target in ((3, "socket:[222]"), (4, "socket:[333]"), (5, "pipe:[9]"), (6, "socket:[111]")):
        (folder / "fd" / str(fd)).symlink_to(target)
    return tmp_path


def test_bytes_that_were_not_acknowledged(proc: Path) -> None:
    found = {entry.local: entry for entry in sockets.sockets_of(5, proc)}
    assert found["127.0.0.1:35372"] == Socket(
        "127.0.0.1:35372", "192.168.0.2:29000", "established", unacknowledged=8000, retransmits=6
    )
    assert found["127.0.0.1:8080"] == Socket("127.0.0.1:8080", "[::1]:29000", "close-wait", unread=3)
    assert found["0.0.0.0:29000"].unread == 0  # a listener's queue counts connections


def test_a_kernel_without_version_6(proc: Path) -> None:
    (proc / "5/net/tcp6").unlink()
    assert set(sockets.table(5, proc)) == {"111", "222"}


def test_in_words(proc: Path) -> None:
    (proc / "5/net/unix").write_text(
        "Num RefCount Protocol Flags Type St Inode Path\n"
        "0: 00000002 00000000 00010000 0001 01 444 /run/x\n"
        "0: 00000003 00000000 00000000 0001 03 555\n"
    )
    assert sockets.describe(5, "222", proc) == "socket 127.0.0.1:35372 -> 192.168.0.2:29000"
    assert sockets.describe(5, "111", proc) == "socket 0.0.0.0:29000 (listening)"
    assert sockets.describe(5, "444", proc) == "unix socket /run/x"
    assert sockets.describe(5, "555", proc) == "unix socket:[555]"
    assert sockets.describe(5, "666", proc) == "socket:[666]"
    assert sockets.describe(6, "666", proc) == "socket:[666]"


def test_who_listens(proc: Path) -> None:
    process(proc, 9)
    assert sockets.listener(29000, seen_from=5, proc=proc) == sockets.Listener(True, 5)
    assert sockets.listener(29001, seen_from=5, proc=proc) == sockets.Listener(False)
    (proc / "5/fd/6").unlink()  # another user's process: its descriptors may not be read
    assert sockets.listener(29000, seen_from=5, proc=proc) == sockets.Listener(True, None)


def test_names_are_resolved_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sockets.resolve("localhost", timeout_s=60)
    assert sockets.resolve("no such host \udcff", timeout_s=60) == ()

    def fails(*_: object) -> None:
        raise socket.gaierror(-2, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    assert sockets.resolve("nowhere.invalid", timeout_s=60) == ()

    end = threading.Event()

    def slow(*_: object) -> list[object]:
        end.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert sockets.resolve("slow", timeout_s=0.05) is None
    end.set()
