from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hangwatch_agent.shared.redact import redact_command, redact_environment, redact_text

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
        ["--header", f"Authorization: token {SECRET}"],
        ["--header", f"X-Api-Key: {SECRET}"],
        ["curl", "-u", f"mia:{SECRET}", "https://x"],
        ["curl", f"-umia:{SECRET}"],
        ["sh", "-c", f"curl --user mia:{SECRET} https://x"],
        ["sh", "-c", f"sshpass -p {SECRET} ssh x"],
        ["sshpass", "-p", SECRET, "ssh", "x"],
        ["mysql", "-u", "mia", f"-p{SECRET}"],
        ["mysqldump", f"-ptwo words {SECRET}", "train"],
        ["sh", "-c", f"/usr/bin/mysql -umia -p{SECRET} -e 'select 1'"],
        ["mongosh", "-u", "mia", "-p", SECRET],
        ["redis-cli", "-h", "cache", "-a", SECRET],
        ["docker", "login", "-u", "mia", "-p", SECRET],
        ["ldapsearch", "-x", "-w", SECRET],
        [f"--password {SECRET}"],
        ["sh", "-c", f'mysql "--password" {SECRET}'],
        ["-c", f"run(['mysql', '--password', '{SECRET}'])"],
        ["sh", "-c", f"curl --token 'two words {SECRET}'"],
        [f"https://acc.blob.core.windows.net/c/f?sv=2024&sig={SECRET}&se=x"],
        [f"https://b.s3.amazonaws.com/f?X-Amz-Signature={SECRET}"],
        [f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET};EndpointSuffix=core"],
        [f"Endpoint=sb://x/;SharedAccessKey={SECRET}"],
        [f"https://hooks.slack.com/services/T000/B000/{SECRET}"],
        [f"https://discord.com/api/webhooks/1234/{SECRET}"],
        [f"https://x.webhook.office.com/webhookb2/{SECRET}"],
        [f"https://chat.example.com/hooks/{SECRET}"],
        [f"login(password='two words {SECRET}')"],
        [f"redis://:{SECRET}@cache:6379/0"],
        [f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----"],
        [f"-----BEGIN RSA PRIVATE KEY-----\nabc\n{SECRET}\ncut off"],
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
        "SG.abcdefghijklmnopqrst.abcdefghijklmnopqrstuvwxyz",
        "nvapi-abcdefghijklmnopqrstuvwxyz",
        "sk_live_abcdefghijklmnop",
        "npm_abcdefghijklmnopqrstuvwxyz0123456789",
        "hvs.abcdefghijklmnopqrstuvwxyz",
        "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
    ],
)
def test_secrets_of_a_known_shape_go_wherever_they_stand(secret: str) -> None:
    assert secret not in redact_text(f"error: {secret} was refused")
    assert secret not in redact_command(["python", secret])
    assert secret not in redact_environment({"HARMLESS": secret})["HARMLESS"]


BODY = "4f9Kx2mQ7vTz0Lr8Wb3Nc6Yd1Hs5Jg" * 4
HEX = "0123456789abcdef" * 8


@pytest.mark.parametrize(
    "secret",
    [
        f"glft-{BODY[:20]}", f"glagent-{BODY[:50]}", f"GR1348941{BODY[:20]}", f"ATBB{BODY[:32]}",
        f"rubygems_{HEX[:48]}", f"dckr_oat_{BODY[:32]}", f"AKCp{BODY[:69]}",
        f"api_org_{BODY[:34]}", f"gsk_{BODY[:52]}", f"xai-{BODY[:80]}", f"pplx-{BODY[:48]}",
        f"dapi{HEX[:32]}", f"pnu_{BODY[:36]}",
        f"ABSK{BODY[:109]}", f"GOCSPX-{BODY[:28]}", f"abc8Q~{BODY[:34]}", f"LTAI{BODY[:20]}",
        f"doo_v1_{HEX[:64]}", f"HRKU-AA{BODY[:58]}", f"s.{BODY[:24]}", f"{BODY[:14]}.atlasv1.{BODY[:64]}",
        f"pul-{HEX[:40]}", f"dp.pt.{BODY[:43]}", f"pscale_tkn_{BODY[:40]}", f"ops_eyJ{BODY[:90]}",
        f"AGE-SECRET-KEY-1{BODY[:58].upper()}", f"xoxe.xoxp-1-{BODY[:90]}", f"SK{HEX[:32]}", f"xkeysib-{HEX[:64]}",
        f"glsa_{BODY[:32]}_{HEX[:8]}", f"dt0c01.{BODY[:24]}.{BODY[:64]}", f"sntrys_{BODY[:80]}", f"NRAK-{BODY[:27]}",
        f"lin_api_{BODY[:40]}", f"ntn_{BODY[:46]}", f"PMAK-{HEX[:24]}-{HEX[:34]}", f"shpat_{HEX[:32]}",
        f"sq0atp-{BODY[:22]}", f"fo1_{BODY[:43]}", f"fm2_{BODY[:90]}",
        f"00{BODY[:40]}", f"00{BODY[:19]}-{BODY[:19]}_",
        f"eyJ{BODY[:80]}",  # JSON in base64 that is no web token
    ],
)  # fmt: skip
def test_tokens_with_the_prefix_of_their_issuer_go(secret: str) -> None:
    for text in (f"RuntimeError: 401 for {secret}", f"['{secret}']", f"https://api/{secret}?a=b"):
        assert secret not in redact_text(text)


def test_the_password_of_a_netrc_line_goes() -> None:
    line = f"machine api.example.com login mia password {SECRET}"
    assert redact_text(line) == "machine api.example.com login mia password [redacted]"


@pytest.mark.parametrize(
    "command",
    [
        "python do_v1_run.py --run s.train.on.everything --out sk/eyJ/glossary --plan v1.0-rc2 xai-bench gsk_score",
        "torchrun --nproc-per-node 2 train.py --lr 0.1",
        "python train.py --tokenizer gpt2 --max-tokens 2048 --num_tokens=4096",
        "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6, pipe_handle=8)",
        "python train.py --author me --keys a --data /mnt/monkey/x",
        "srun --ntasks=8 python train.py --token-file /run/token",
        "docker run -u 1000:1000 image python -u train.py",
        "python train.py --signal 15 --design v2 --path /data/patterns --config=sigmoid",
    ],
)
def test_what_is_no_secret_stays(command: str) -> None:
    assert redact_command(command.split(" ")) == command


@pytest.mark.parametrize(
    "sentence",
    [
        "the password is {}",
        "Password for mia was '{}'",
        "PASSWORD IS SET TO {}.",
        "no such user mia with password {}",
        "user mia / password {}",
        "basic auth mia:{}",
        "Basic bWlhOmg6{}",
        "Command '['mysql', '--password', '{}']' returned non-zero exit status 1",
    ],
)
def test_passwords_in_sentences_go(sentence: str) -> None:
    assert redact_text(sentence.format("hunter2")) == sentence.format("[redacted]").replace("bWlhOmg6", "")


def test_tokens_and_keys_in_sentences_go_where_they_are_no_words() -> None:
    assert redact_text("the token is abc123def456") == "the token is [redacted]"
    assert redact_text("invalid api key 4f9Kx2mQ7vT") == "invalid api key [redacted]"


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "text",
    [
        f"commit {COMMIT}", f"HEAD is now at {COMMIT}", f"git+https://github.com/a/b.git@{COMMIT}",
        f"/hub/models--a--b/snapshots/{COMMIT}/config.json", f"revision='{COMMIT}'", "at 0123abc",
        f"sha256:00{COMMIT[:62]}", f"00{COMMIT}", f"00{'ab' * 31}", "00_a1_Hang",
        "0001-Fix-the-hang-in-the-loader.patch",
        "123e4567-e89b-12d3-a456-426614174000", "00000000-e89b-12d3-a456-426614174000",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "torch.Size([2, 3, 224, 224])", "tensor([[0.1, 0.2], [3., 4.]], device='cuda:0')",
        "/data/runs/2026-11-25T00-00-00/checkpoint-0000100/model-00001-of-00004.safetensors",
        "the password is required", "password was not set.", 'password authentication failed for user "mia"',
        "the token is 50256", "pad token is <pad>", "next token token_id", "secret is missing", "password /etc/pw1",
        "basic training loop 3 of 5", "basic authentication failed", "the access key is wrong",
        "for each in sorted(items, key=lambda it: int((it[0] != 0).sum())):",
        "mysql -p train --host db3", "docker run -p 8080:80 x", "cp -a x redis-cli", "['--rank', '3']",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact_text(text) == text


def test_a_command_is_one_line() -> None:
    """Else what stands in a child's `python -c` would break the line of a report that names the child."""
    script = "import os\r\n\n    os.wait()\x85\u2028x = 'a  b'"
    assert redact_command(["python", "-c", script]) == "python -c import os os.wait() x = 'a  b'"
    key = f"-----BEGIN RSA PRIVATE KEY-----\nabc\n{SECRET}"
    assert redact_command(["sh", "-c", key]) == "sh -c -----BEGIN RSA PRIVATE KEY-----[redacted]"


def test_environments() -> None:
    given_ = {"RANK": "3", "HANGWATCH_TOKEN": "geheim", "NCCL_DEBUG": "INFO", "EMPTY_TOKEN": ""}
    assert redact_environment(given_) == {**given_, "HANGWATCH_TOKEN": "[redacted]"}


@given(st.lists(st.text(max_size=12) | st.sampled_from(["--token", "key=", "://", "x@", "bearer "]), max_size=6))
def test_nothing_makes_it_fail(arguments: list[str]) -> None:
    """Whatever is written: every argument stays a word, and what has been redacted once is not touched again."""
    command = redact_command(arguments)
    assert command.count(" ") >= len(arguments) - 1
    assert len(command.splitlines()) <= 1
    for blank in ("", " "):
        once = redact_text(blank.join(arguments))
        assert redact_text(once) == once


@given(
    st.text(st.characters(categories=["L", "N"]), min_size=12, max_size=40), st.sampled_from(["--token", "--password"])
)
def test_an_options_secret_never_stays(secret: str, option: str) -> None:
    assert secret not in redact_command(["x", option, secret])
    assert secret not in redact_command(["x", f"{option}={secret}"])


FRAGMENTS = (
    "token", "key=", "key: \"", "--token ", "-u a:", "://", "://a:", "a@", "bearer ",
    "authorization: ", "eyJ-", "eyJaaaaaaaa.", "eyJ" + "a" * 60 + ".", "a.atlasv1.", "login a ", "password ",
    "password is ", "set to ", "with password ", "token for ", "'--token', '", "mysql ", "-p", "docker login ", "ldap ",
    "basic auth a:", "basic ", "commit ", "00aA", "is ", ".",
    "/hooks/", "https://h/", "-----BEGIN X-----", "-----END X-----", "SG.aaaaaaaaaaaaaaaa.", "a-", "_",
    " ", "\n", "'", "sshpass -p",     "A" * 64, "0" * 39,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4))
def test_no_repetition_takes_longer_than_in_proportion(parts: list[str]) -> None:
    """A text of 16 kB, as much as is ever read of a log, made of whatever the patterns look at."""
    text = "".join(parts) * (16_384 // len("".join(parts)))
    started = time.process_time()
    redact_text(text)
    assert time.process_time() - started < 2.0


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=8))
@example(["eyJ" + "a" * 60 + ".", "--token ", "token for ", "ldap ", "a.atlasv1."])
def test_what_has_been_redacted_is_not_touched_again(parts: list[str]) -> None:
    once = redact_text("".join(parts))
    assert redact_text(once) == once


def test_a_key_in_lines_of_source_goes_line_by_line() -> None:
    line = "MIIEpAIBAAKCAQEA7" + "bX" * 23 + "9"
    assert len(line) == 64
    assert line not in redact_text(f'    "{line}\\n"')
    assert redact_text("/" + "data/" * 15) == "/" + "data/" * 15


def test_long_lines_take_no_time() -> None:
    started = time.process_time()
    assert redact_text("a-" * 20_000) == "a-" * 20_000
    assert redact_text("key=" * 10_000) == "key=[redacted]"
    assert redact_text("://" * 10_000) == "://" * 10_000
    assert time.process_time() - started < 2.0
