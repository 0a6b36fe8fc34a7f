"""Stacks as `py-spy dump` and faulthandler write them."""

from __future__ import annotations

import faulthandler
import json
import threading
from pathlib import Path

from hangwatch.model import ThreadStack
from hangwatch.stacks.classify import activity
from hangwatch.stacks.texts import Texts, of_json

PY_SPY = """\
Process 3001: /opt/venv/bin/python -u train.py --cfg a.yaml
Python v3.11.9 (/opt/venv/bin/python3.11)

Thread 3001 (idle): "MainThread"
    pthread_cond_wait (libpthread-2.31.so)
    wait (threading.py:331)
    Queue.get (queue.py:180)
    _try_get_data (torch/utils/data/dataloader.py:1275)
    __next__ (torch/utils/data/dataloader.py:733)
    train (project/train.py:84)
        Arguments:
            config: "a.yaml"
    <module> (train.py:140)
Thread 3101 (active+gil): "Thread-1 (_pin_memory_loop)"
    select (selectors.py:415)
"""


def read(text: str) -> tuple[ThreadStack, ...]:
    texts = Texts()
    for line in text.splitlines():
        texts.take(line)
    return texts.dump.stacks() if texts.dump is not None else ()


def test_the_text_of_py_spy() -> None:
    main, other = read(PY_SPY)
    assert (main.main, main.name, main.thread_id, main.active) == (True, "MainThread", 3001, False)
    assert (other.main, other.name, other.owns_gil) == (False, "Thread-1 (_pin_memory_loop)", True)
    assert [frame.function for frame in main.frames[:3]] == ["pthread_cond_wait", "wait", "get"]
    assert [frame.native for frame in main.frames[:3]] == [True, False, False]
    doing = activity(main)
    assert (doing.doing, doing.where and doing.where.line) == ("loader", 84)


def test_a_module_of_the_user_that_is_named_like_one_of_python_is_the_users() -> None:
    (main,) = read(
        'Process 1: python trace.py\nThread 1 (active): "MainThread"\n    step (trace.py:3)\n    <module> (trace.py:9)'
    )
    assert activity(main).where == main.frames[0]


def test_what_faulthandler_writes(tmp_path: Path) -> None:
    path, end = tmp_path / "stacks.txt", threading.Event()
    thread = threading.Thread(target=end.wait, name="other")
    thread.start()
    with path.open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    end.set()
    thread.join()
    stacks = read(path.read_text())
    assert [stack.main for stack in stacks][:2] == [True, False]
    assert any(frame.function == test_what_faulthandler_writes.__name__ for frame in stacks[0].frames)
    assert stacks[0].source == "faulthandler"


def test_the_last_of_several_dumps_counts() -> None:
    dump = "Current thread 0x00007f (most recent call first):\n" + '  File "/w/train.py", line {line} in main\n'
    (main,) = read(f"{dump.format(line=3)}\n{dump.format(line=8)}")
    assert main.frames[0].line == 8
    one, two = read(f'Thread 0x07 (most recent call first):\n  File "/w/b.py", line 1 in f\n\n{dump.format(line=3)}')
    assert (one.frames[0].line, two.frames[0].file) == (3, "/w/b.py")


def test_other_lines_are_no_stacks() -> None:
    assert not read("Process 12: done\nThread 7 is idle\n  something (else:3)")


def test_the_json_of_py_spy() -> None:
    frame = {"name": "Queue.get", "filename": "/usr/lib/python3.11/queue.py", "module": None, "line": 180}
    native = {"name": "poll", "filename": "", "module": "/lib/libc.so.6", "line": 0}
    thread = {"pid": 7, "thread_id": 1, "thread_name": None, "os_thread_id": 7, "active": True, "owns_gil": False}
    read = of_json(json.dumps([{**thread, "frames": [native, frame]}]).encode())
    assert read is not None
    pid, (stack,) = read
    assert (pid, stack.name, stack.main) == (7, "MainThread", True)
    assert [(each.function, each.native) for each in stack.frames] == [("poll", True), ("get", False)]
    assert of_json(b"[]") is None
    assert of_json(b'[{"pid": 3}]') is None


def test_json_that_is_nested_too_deep_is_no_stack() -> None:
    assert of_json(b"[" * 200_000) is None
