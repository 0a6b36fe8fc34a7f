"""Where everything stands on a board, as numbers: words, slots, rings, table and blobs.

The format is explained in `hangwatch_agent.board.writer.BoardWriter`.
"""

from __future__ import annotations

MAGIC = int.from_bytes(b"HANGWTCH", "little")
# 2: a call site is the whole call path, as numbers of the table's lines; 3: blob "caught"; 4: peer slots;
# 5: the newest backward before a step, and the newest forward without synchronisation
VERSION = 5

# Indices of the words at the front.
(W_MAGIC, W_VERSION, W_SIZE, W_PID, W_START_TICKS, W_DETACHED, W_PHASE, W_PHASE_AT) = range(8)
(W_OPTIMIZER_STEPS, W_FORWARDS, W_TICKS, W_DRAWS, W_CALLS, W_COMPLETED, W_MOVED_AT, W_TICKER_AT) = range(8, 16)
(W_STEPS_WRITTEN, W_CALLS_WRITTEN, W_TABLE_USED, W_REQUEST, W_ANSWERED, W_LOADER) = range(16, 22)
(W_TIMED_STEPS, W_DATA_NS, W_BEFORE_SYNC_NS, W_TOTAL_NS, W_LAST_NS, W_SLOWEST_NS) = range(22, 28)
(W_ANCHOR_NS, W_PID_NAMESPACE, W_TAKEN_BACK, W_BACKWARD_STEP) = range(28, 32)
W_BLOBS = 32  # per blob: which half is valid, then length and checksum of each half

BLOBS = {  # name: bytes in each half
    "identity": 8 << 10,
    "groups": 24 << 10,
    "loaders": 24 << 10,
    "exception": 16 << 10,
    "groups_made": 24 << 10,
    "problems": 4 << 10,
    "lasting_threads": 4 << 10,
    "caught": 32 << 10,
}
BLOB_WORDS = 5
W_BACKWARD_PATH = W_BLOBS + len(BLOBS) * BLOB_WORDS  # of the call path to backward, one more; 0 where it is not one
W_ACCUMULATED_STEP = W_BACKWARD_PATH + 1  # one more than the newest step with a forward that is not to synchronise

GROUP_SLOTS, LOADER_SLOTS, THREAD_SLOTS, PEER_SLOTS = 24, 8, 16, 64
SLOT_WORDS, PEER_WORDS = 8, 4
(G_ISSUED, G_COMPLETED, G_SENT, G_RECEIVED) = range(4)
(L_EPOCH, L_DRAWN, L_FLAGS) = range(3)
F_EXHAUSTED, F_LEFT, F_TRAINING = 1, 2, 4
(T_IDENT, T_NAME, T_CALL, T_ENTERED) = range(4)
(P_GROUP, P_PEER, P_SENT, P_RECEIVED) = range(4)  # of P_GROUP, one more: 0 is a slot that is free

STEPS = 512
STEP_WORDS = 10 + GROUP_SLOTS
(S_MARK, S_STEP, S_EPOCH, S_BATCH, S_LOADER, S_AT, S_END, S_OPTIMIZED, S_BACKWARD, S_ACCUMULATED) = range(10)
S_ISSUED = 10
CALLS = 2048
CALL_WORDS = 12
(C_MARK, C_GROUP, C_SEQ, C_OP, C_SHAPES, C_NUMEL, C_PEER, C_TAG, C_THREAD, C_SITE, C_STEP, C_AT) = range(12)
TABLE_BYTES = 128 << 10

NONE = -(1 << 62)  # a word that is not known

# In the order of `records.Phase`; a test holds the two together.
PHASES = (
    "start", "init", "group", "ready", "data", "step", "forward", "backward", "optimizer", "eval", "between",
    "destroying", "destroyed", "main-done", "atexit", "finalizing", "failed",
)  # fmt: skip
(START, INIT, GROUP, READY, DATA, STEP, FORWARD, BACKWARD, OPTIMIZER, EVAL, BETWEEN) = range(11)
(DESTROYING, DESTROYED, MAIN_DONE, ATEXIT, FINALIZING, FAILED) = range(11, 17)

GROUPS_AT = 128
LOADERS_AT = GROUPS_AT + GROUP_SLOTS * SLOT_WORDS
THREADS_AT = LOADERS_AT + LOADER_SLOTS * SLOT_WORDS
PEERS_AT = THREADS_AT + THREAD_SLOTS * SLOT_WORDS
STEPS_AT = PEERS_AT + PEER_SLOTS * PEER_WORDS
CALLS_AT = STEPS_AT + STEPS * STEP_WORDS
WORDS = CALLS_AT + CALLS * CALL_WORDS
TABLE_AT = WORDS * 8  # in bytes, from here on
BLOBS_AT = TABLE_AT + TABLE_BYTES
SIZE = BLOBS_AT + 2 * sum(BLOBS.values())


class BoardError(ValueError):
    """A file that is no board of this version. The message says what is wrong with it."""


def blob_places() -> dict[str, tuple[int, int, int]]:
    """For each blob: the index of its first word, its first byte, and the bytes in each half."""
    places, start = {}, BLOBS_AT
    for number, (name, capacity) in enumerate(BLOBS.items()):
        places[name] = (W_BLOBS + number * BLOB_WORDS, start, capacity)
        start += 2 * capacity
    return places


def board_name(pid: int, start_ticks: int) -> str:
    """The file name of a rank's board. The start keeps a reused pid from being taken for the rank."""
    return f"rank-{pid}-{start_ticks}.board"
