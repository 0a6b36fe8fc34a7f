"""Boards that are wrong on purpose: a reader gives its own error or a Reading, and one bad rank costs one rank.

`HANGWATCH_MUTATIONS=1000000` asks for a million mutated boards instead of some hundred. So long a run needs a
`--basetemp` of its own: pytest deletes the folders of older runs.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import random
import time
import zlib
from dataclasses import asdict
from pathlib import Path

import pytest

from hangwatch.model import Reading
from hangwatch.settings import Settings
from hangwatch.wire import codec
from hangwatch_agent.board import layout as b
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.board.reader import BoardReader, read_board
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.dashboard_client import messages
from hangwatch_agent.overhead.poll import MadeUpRank
from hangwatch_agent.roster import patience
from hangwatch_agent.roster.rank_states import RankState, Roster, mark
from tests.unit.agent.readings import reading

CALLS_MADE = 60
MUTATIONS = int(os.environ.get("HANGWATCH_MUTATIONS", "500"))
SEED = int(os.environ.get("HANGWATCH_SEED", "12"))
EXTREMES = (0, 1, -1, 2, b.STEPS, b.CALLS, b.SIZE, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63), b.NONE)
VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**70,
    10**8,
    -(2**63),
    1e308,
    "x",
    "9" * 5000,
    [],
    {},
    [[]],
    {"a": [{}]},
    [None] * 300,
)


def full_board(path: Path) -> bytes:
    """A board with something in every part of it."""
    identity = asdict(reading(0, world_size=8, pid=4321).identity)
    writer = BoardWriter.create(path, identity, start_ticks=7)
    writer.write("groups", [[0, 0, True, "0", "0-7", "default_pg", "gloo"], [1, 0, False, "1", "0,2", "", "nccl"]])
    writer.write("loaders", [{"index": 0, "length": 12, "worker_pids": [5, 6]}])
    writer.write("exception", {"type": "ValueError", "message": "no", "frames": [], "at": 5.0})
    writer.write("groups_made", [[0, "0-7", "0", True, ["train.py", 3, "main"]]])
    writer.write("problems", ["one"])
    writer.write("lasting_threads", [7])
    names = [writer.intern(each) for each in ("all_reduce", [[[10]], ["Float"]], [["train.py", 10, "main"]])]
    for number in range(CALLS_MADE):
        call = writer.call(0, number, names[0], names[1], 10, b.NONE, b.NONE, names[2], 5, 1_000)
    writer.enter(call, 1_000)
    words = writer.words
    words[b.W_STEPS_WRITTEN] = 3
    for number in range(3):
        words[b.STEPS_AT + number * b.STEP_WORDS] = number + 1
    return path.read_bytes()


Bytes = bytearray | mmap.mmap


def mutate(data: Bytes, rng: random.Random) -> None:
    """Change a few words, bytes or blobs of a board."""
    for _ in range(rng.randint(1, 4)):
        rng.choice((_word, _front_word, _bytes, _blob))(data, rng)


def _word(data: Bytes, rng: random.Random) -> None:
    _put(data, rng.randrange(b.WORDS), rng)


def _front_word(data: Bytes, rng: random.Random) -> None:
    _put(data, rng.randrange(3, b.STEPS_AT), rng)


def _put(data: Bytes, word: int, rng: random.Random) -> None:
    value = rng.choice((*EXTREMES, rng.getrandbits(63)))
    data[word * 8 : word * 8 + 8] = value.to_bytes(8, "little", signed=True)


def _bytes(data: Bytes, rng: random.Random) -> None:
    at = rng.randrange(len(data) - 3)
    data[at : at + 4] = rng.randbytes(4)


def _blob(data: Bytes, rng: random.Random) -> None:
    """Valid JSON, rightly marked, that says what no rank says."""
    word, start, capacity = b.blob_places()[rng.choice(list(b.BLOBS))]
    half = max(int.from_bytes(data[word * 8 : word * 8 + 8], "little") - 1, 0) & 1
    at = start + half * capacity
    length = int.from_bytes(data[(word + 1 + 2 * half) * 8 :][:8], "little") & 0xFFFF
    try:
        value = json.loads(bytes(data[at : at + length]))
    except ValueError:
        value = []
    text = json.dumps(_spoiled(value, rng)).encode()[:capacity]
    data[at : at + len(text)] = text
    for offset, number in ((0, half + 1), (1 + 2 * half, len(text)), (2 + 2 * half, zlib.crc32(text))):
        data[(word + offset) * 8 : (word + offset) * 8 + 8] = number.to_bytes(8, "little")


def _spoiled(value: object, rng: random.Random) -> object:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        return {**value, name: _spoiled(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _spoiled(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def use(found: Reading) -> None:
    """What a poll does with a reading."""
    mark(found)
    patience.patience(RankState(Path("rank.board"), found, 0.0, "S", 0.0), Settings())
    messages.waiting_for(found)
    codec.dumps(found)
    assert 0 < found.identity.pid <= 1 << 22


@pytest.mark.untraced
@pytest.mark.timeout(0)  # a million take half an hour
def test_mutated_boards_give_a_reading_or_the_readers_own_error(tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()  # pytest's dump after five minutes can crash a thread that runs
    path = tmp_path / "rank-4321-7.board"
    original = full_board(path)
    readings = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), b.SIZE) as data:
        for number in range(MUTATIONS):
            rng = random.Random(f"{SEED} {number}")
            data[:] = original
            mutate(data, rng)
            if rng.random() < 0.02:
                file.truncate(rng.randrange(b.SIZE))
            try:
                readings += read_twice(path)
            except BaseException as error:
                error.add_note(f"seed {SEED}, board {number}")
                raise
            file.truncate(b.SIZE)
    assert readings > MUTATIONS // 2


def read_twice(path: Path) -> int:
    """Read a board anew and from what is remembered. Returns how often that gave a Reading."""
    readings = 0
    with BoardReader(path) as opened:
        for _ in range(2):
            try:
                found = opened.read()
            except BoardError:
                continue
            readings += 1
        if readings:
            use(found)
    return readings


def test_a_board_that_is_mutated_while_it_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "rank-4321-7.board"
    original = full_board(path)
    rng = random.Random(12)
    with BoardReader(path) as opened, path.open("r+b") as file:
        for _ in range(200):
            data = bytearray(original)
            mutate(data, rng)
            file.seek(0)
            file.write(data)
            file.flush()
            try:
                use(opened.read())
            except BoardError:
                continue
        file.seek(0)
        file.write(original)
        file.flush()
        calls = opened.read().calls
        assert [call.seq for call in calls] == list(range(CALLS_MADE))


@pytest.mark.parametrize(
    "wrong", [{"pid": 2**70}, {"pid": 0}, {"pid": -1}, {"world_size": 10**8}, {"rank": -1}, {"started_at": 1e300}]
)
def test_an_impossible_identity_costs_one_rank(tmp_path: Path, wrong: dict[str, object]) -> None:
    # GIVEN three ranks, of which one says what cannot be
    for rank in range(3):
        identity = asdict(reading(rank, world_size=3).identity) | (wrong if rank == 1 else {})
        BoardWriter.create(tmp_path / b.board_name(1000 + rank, 7), identity, start_ticks=7)
    # WHEN their watchdog looks
    roster = Roster(tmp_path, state_of=lambda pid, ticks: "S")
    began = time.monotonic()
    found = roster.update(50.0)
    # THEN the others are watched, at once, and the bad board is named
    assert [each.rank for each in found] == [0, 2]
    assert [path.name for path in roster.broken] == [b.board_name(1001, 7)]
    assert time.monotonic() - began < 20


def test_any_error_of_a_board_is_that_boards_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        identity = asdict(reading(rank).identity)
        BoardWriter.create(tmp_path / b.board_name(1000 + rank, 7), identity, start_ticks=7)
    real = BoardReader.read

    def read(self: BoardReader, **arguments: int) -> Reading:
        if "1001" in self.path.name:
            raise ZeroDivisionError("unforeseen")
        return real(self, **arguments)

    monkeypatch.setattr(BoardReader, "read", read)
    roster = Roster(tmp_path, state_of=lambda pid, ticks: "S")
    assert [each.rank for each in roster.update(50.0)] == [0]
    assert "unforeseen" in next(iter(roster.broken.values()))


def test_steps_that_were_taken_back_are_not_remembered(tmp_path: Path) -> None:
    """GIVEN a reader that follows WHEN numbers are used again for other steps THEN it tells of the new ones."""
    path = tmp_path / b.board_name(1000, 7)
    writer = BoardWriter.create(path, asdict(reading(0).identity), start_ticks=7)

    def write(count: int, batch: int) -> None:
        for number in range(count):
            entry = b.STEPS_AT + number * b.STEP_WORDS
            writer.words[entry + b.S_STEP], writer.words[entry + b.S_BATCH] = number, batch
            writer.words[entry] = writer.words[b.W_STEPS_WRITTEN] = number + 1

    write(3, 7)
    assert [step.batch for step in read_board(path).steps] == [7, 7, 7]
    writer.words[b.W_TAKEN_BACK] += 1
    writer.words[b.W_STEPS_WRITTEN] = 0
    write(4, 8)
    assert [step.batch for step in read_board(path).steps] == [8, 8, 8, 8]


def test_a_poll_decodes_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / b.board_name(1000, 7)
    writer = BoardWriter.create(path, asdict(reading(0).identity), start_ticks=7)
    with BoardReader(path) as opened:
        for number in range(3 * b.CALLS):
            writer.call(0, number, -1, -1, 1, 0, 0, -1, 0, 1)
        before = opened.read().calls
        assert [call.seq for call in before] == list(range(2 * b.CALLS + 1, 3 * b.CALLS))
        assert opened.read().calls is before
        writer.call(0, 3 * b.CALLS, -1, -1, 1, 0, 0, -1, 0, 1)
        after = opened.read().calls
        assert after[:-1] == before[1:]
        assert all(old is new for old, new in zip(before[1:], after[:-1], strict=True))


def test_an_entry_that_was_late_is_taken_up_in_its_place(tmp_path: Path) -> None:
    """A thread may be interrupted between its number and its mark, while others go on."""
    path = tmp_path / b.board_name(1000, 7)
    writer = BoardWriter.create(path, asdict(reading(0).identity), start_ticks=7)
    for number in range(5):
        writer.call(0, number, -1, -1, 1, 0, 0, -1, 0, 1)
    mark_word = b.CALLS_AT + 2 * b.CALL_WORDS
    writer.words[mark_word] = 0
    with BoardReader(path) as opened:
        assert [call.seq for call in opened.read().calls] == [0, 1, 3, 4]
        writer.words[mark_word] = 3
        assert [call.seq for call in opened.read().calls] == [0, 1, 2, 3, 4]


def test_more_boards_than_are_kept_open_are_read_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred and thirty ranks on a node: no board is opened, or decoded as a whole, at every poll."""
    ranks = 130
    for rank in range(ranks):
        identity = asdict(reading(rank, world_size=ranks).identity)
        BoardWriter.create(tmp_path / b.board_name(1000 + rank, 7), identity, start_ticks=7)
    opened = []
    real = BoardReader.__init__

    def init(self: BoardReader, path: Path) -> None:
        opened.append(path)
        real(self, path)

    monkeypatch.setattr(BoardReader, "__init__", init)
    roster = Roster(tmp_path, state_of=lambda pid, ticks: "S")
    for now in (50.0, 51.0, 52.0):
        assert len(roster.update(now)) == ranks
    assert len(opened) == ranks


@pytest.mark.untraced
def test_the_work_of_a_poll_is_linear_in_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes read from boards, not seconds: twice the ranks are twice the work, also where there are many."""
    read: list[int] = []
    real = os.pread

    def pread(descriptor: int, count: int, offset: int) -> bytes:
        read.append(count)
        return real(descriptor, count, offset)

    def work(ranks: int) -> int:
        folder = tmp_path / str(ranks)
        folder.mkdir()
        made = [MadeUpRank(folder, rank, ranks) for rank in range(ranks)]
        roster = Roster(folder, state_of=lambda pid, ticks: "R")
        roster.update(50.0)
        for each in made:
            each.step()
        read.clear()
        assert len(roster.update(51.0)) == ranks
        return sum(read)

    monkeypatch.setattr(os, "pread", pread)
    few, many = work(40), work(80)
    assert many <= 2.2 * few
    assert few / 40 < b.SIZE / 50  # the rings are not read as a whole
