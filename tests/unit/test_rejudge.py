"""scripts/rejudge.py: the evidence of stored reports, judged by the rules of this checkout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.judge import diagnose
from hangwatch.report import files
from hangwatch.report.incident import snapshot_of
from scripts import rejudge
from tests.examples import uneven_steps


def test_it_tells_what_the_rules_say_now_and_what_the_report_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = replace(uneven_steps(), verdict=diagnose(snapshot_of([uneven_steps()])).verdict)
    same = files.write(judged, tmp_path / "same").json_path
    other = files.write(
        replace(judged, verdict=replace(judged.verdict, cause="early-exit")), tmp_path / "other"
    ).json_path
    (tmp_path / "incident-cut.json").write_text("{")
    assert rejudge.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    told = f"uneven-steps, {judged.verdict.certainty}, rank 3"
    assert out.splitlines() == [
        f"{other}: {told} (the report said: {told.replace('uneven-steps', 'early-exit')})",
        f"{same}: {told}",
    ]
    assert "incident-cut.json" in err
    assert err.endswith("2 reports\n")


def test_a_folder_without_reports_is_an_error(tmp_path: Path) -> None:
    assert rejudge.main([str(tmp_path)]) == 1
