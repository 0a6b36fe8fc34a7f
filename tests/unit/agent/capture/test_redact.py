from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch_agent.capture.redact import redact_command, redact_environment, redact_text

SECRET = "s3cr3t-V4lue+/xyz"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token", SECRET],
        [f"--token={SECRET}"],
        ["--hf_token", SECRET],
        ["--api-key", f"{SECRET} with blanks"],
        [f"password={SECRET}"],
        ["--wandb-api-key", SECRET],
        ["-c", f"login(password='{SECRET}')"],
        ["-c", f'{{"secret": "{SECRET}"}}'],
        [f"postgres://user:{SECRET}@db/train"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        ["--header", f"Authorization: Bearer {SECRET}"],
    ],
)
def test_named_secrets_go(arguments: list[str]) -> None:
    assert SECRET not in redact_command(["python", "train.py", *arguments])
    assert "[redacted]" in redact_command(["python", "train.py", *arguments])


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnopqrstuv",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "sk-proj-abcdefghijklmnopqrst",
        "xoxb-123456789012-abcdef",
        "glpat-abcdefghijklmnopqrst",
        "0123456789abcdef0123456789abcdef01234567",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdef",
    ],
)
def test_secrets_of_a_known_shape_go_wherever_they_stand(secret: str) -> None:
    assert secret not in redact_text(f"error: {secret} was refused")
    assert secret not in redact_command(["python", secret])
    assert secret not in redact_environment({"HARMLESS": secret})["HARMLESS"]


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node 2 train.py --lr 0.1",
        "python train.py --tokenizer gpt2 --max-tokens 2048 --num_tokens=4096",
        "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6, pipe_handle=8)",
        "python train.py --author me --keys a --data /mnt/monkey/x",
        "srun --ntasks=8 python train.py --token-file /run/token",
    ],
)
def test_what_is_no_secret_stays(command: str) -> None:
    assert redact_command(command.split(" ")) == command


def test_environments() -> None:
    given_ = {"RANK": "3", "HANGWATCH_TOKEN": "geheim", "NCCL_DEBUG": "INFO", "EMPTY_TOKEN": ""}
    assert redact_environment(given_) == {**given_, "HANGWATCH_TOKEN": "[redacted]"}


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--token", "key=", "://", "x@", "bearer "]), max_size=6))
def test_nothing_makes_it_fail(arguments: list[str]) -> None:
    """Whatever is written: every argument stays a word, and what has been redacted once is not touched again."""
    assert redact_command(arguments).count(" ") >= len(arguments) - 1
    for blank in ("", " "):
        once = redact_text(blank.join(arguments))
        assert redact_text(once) == once


@given(
    st.text(st.characters(categories=["L", "N"]), min_size=12, max_size=40), st.sampled_from(["--token", "--password"])
)
def test_an_options_secret_never_stays(secret: str, option: str) -> None:
    assert secret not in redact_command(["x", option, secret])
    assert secret not in redact_command(["x", f"{option}={secret}"])


def test_long_lines_take_no_time() -> None:
    started = time.process_time()
    assert redact_text("a-" * 20_000) == "a-" * 20_000
    assert redact_text("key=" * 10_000) == "key=[redacted]"
    assert redact_text("://" * 10_000) == "://" * 10_000
    assert time.process_time() - started < 2.0
