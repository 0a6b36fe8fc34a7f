"""Digests of a real process's environment."""

from __future__ import annotations

import os
import subprocess

from hangwatch_agent.capture.proc.variables import digests


def of_a_process(**environment: str) -> dict[str, str]:
    process = subprocess.Popen(["cat"], env={"PATH": os.environ["PATH"], **environment}, stdin=-1, stdout=-1)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"here\n")
        process.stdin.flush()
        process.stdout.readline()  # its own program runs: before that the system shows none
        found = digests(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert found is not None
    return found


def test_equal_values_have_equal_digests_and_no_value_is_kept() -> None:
    one, same, other = (of_a_process(EVAL_EVERY=value, DATA="corpus-of-mine") for value in ("10", "10", "8"))
    assert one == same
    assert one["EVAL_EVERY"] != other["EVAL_EVERY"]
    assert one["DATA"] == other["DATA"]
    assert "corpus" not in str(one)


def test_what_is_secret_by_its_name_has_no_digest() -> None:
    assert of_a_process(DB_PASSWORD="hunter2", EPOCHS="3").keys() == {"PATH", "EPOCHS"}


def test_two_variables_of_one_value_do_not_look_alike() -> None:
    found = of_a_process(A="1", B="1")
    assert found["A"] != found["B"]


def test_what_concerns_distributed_training_is_kept_elsewhere() -> None:
    assert of_a_process(RANK="0", NCCL_DEBUG="INFO", EPOCHS="3").keys() == {"PATH", "EPOCHS"}


def test_a_process_that_is_gone_has_none() -> None:
    assert digests(1 << 22) is None
