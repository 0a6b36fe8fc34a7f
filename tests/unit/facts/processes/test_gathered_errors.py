"""Errors of single ranks in the message of one that torch raised on all."""

from __future__ import annotations

from hangwatch.facts.processes.gathered_errors import gathered
from hangwatch.model import ExceptionFacts

MESSAGE = """CheckpointException ranks:dict_keys([2, 5])
Traceback (most recent call last): (RANK 2)
  File "utils.py", line 193, in reduce_scatter
    local_data = map_fun()
                 ^^^^^^^^^
RuntimeError: Missing key in checkpoint state_dict: reader_2.offset.
Traceback (most recent call last): (RANK 5)
OSError: [Errno 28] No space left on device
"""


def test_each_rank_with_the_last_line_of_its_traceback() -> None:
    assert gathered(ExceptionFacts("CheckpointException", MESSAGE, ())) == {
        2: "RuntimeError: Missing key in checkpoint state_dict: reader_2.offset.",
        5: "OSError: [Errno 28] No space left on device",
    }


def test_an_error_of_one_rank_gathers_none() -> None:
    assert gathered(ExceptionFacts("ValueError", "no such key (RANK 2)", ())) == {}
