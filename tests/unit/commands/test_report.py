"""hangwatch report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.commands import main
from hangwatch.report import files, terminal
from tests import examples
from tests.dumps import Job, Op, alike, loop

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = files.write(examples.uneven_steps(), tmp_path / "reports").json_path
    assert path is not None
    return path


def test_an_incident_is_printed_again(report: Path, capsys: Capture) -> None:
    assert main(["report", str(report)]) == 0
    expected = terminal.render(examples.uneven_steps(), 100, False, str(report.with_suffix(".html")))
    assert capsys.readouterr().out == expected


def test_without_html_beside_it_the_json_is_named(report: Path, capsys: Capture) -> None:
    report.with_suffix(".html").unlink()
    assert main(["report", str(report)]) == 0
    assert f"  report  {report}\n" in capsys.readouterr().out


def test_the_newest_needs_no_name(report: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert main(["report", "--report-dir", str(report.parent)]) == 0
    assert "Rank 3 ran out of data" in capsys.readouterr().out
    monkeypatch.setenv("HANGWATCH_REPORT_DIR", str(report.parent))
    assert main(["report"]) == 0


def test_of_a_folder_the_newest_is_taken_and_named(report: Path, capsys: Capture) -> None:
    later = replace(examples.uneven_steps(), id="later", opened_at=examples.uneven_steps().opened_at + 60)
    newest = files.write(later, report.parent).json_path
    assert newest is not None
    assert main(["report", str(report.parent), "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["id"] == "later"
    assert captured.err == f"hangwatch: the newest report in {report.parent} is {newest.name}\n"


def test_of_a_folder_without_a_report_its_content_is_listed(tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"hangwatch: no incident in {tmp_path}: it is empty\n"
    (tmp_path / "hangwatch-reports").mkdir()
    (tmp_path / "train.log").touch()
    assert main(["report", str(tmp_path)]) == 2
    expected = f"hangwatch: no incident in {tmp_path}: it holds hangwatch-reports/, train.log\n"
    assert capsys.readouterr().err == expected
    for number in range(10):
        (tmp_path / f"step-{number}.pt").touch()
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(", step-6.pt and 4 more\n")


def test_other_evidence_is_sent_to_the_command_that_judges_it(tmp_path: Path, capsys: Capture) -> None:
    (dump, *_) = Job(2, alike(2, loop(3, Op("all_reduce", 20)))).write(tmp_path / "dumps")
    log = tmp_path / "train.log"
    log.write_text("epoch 1, loss 0.3\n")
    for path, kind in ((dump, "flight-recorder dump"), (log, "log")):
        assert main(["report", str(path)]) == 2
        expected = f"hangwatch: {path} is a {kind}, no report; judge it with: hangwatch analyze {path}\n"
        assert capsys.readouterr().err == expected


def test_no_report_is_said(tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", "--report-dir", str(tmp_path)]) == 2
    expected = f"hangwatch: no incident in {tmp_path}; name a file, or the place with --report-dir\n"
    assert capsys.readouterr().err == expected


def test_other_forms(report: Path, tmp_path: Path, capsys: Capture) -> None:
    for form in ("html", "json", "speedscope"):
        out = tmp_path / f"out.{form}"
        assert main(["report", str(report), f"--{form}", str(out)]) == 0
        assert capsys.readouterr().out == f"hangwatch: wrote {out}\n"
    assert files.read(tmp_path / "out.json") == examples.uneven_steps()
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "out.speedscope").read_text())["exporter"] == "hangwatch"
    assert main(["report", str(report), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "3f2a"


def test_markdown_before_the_name_of_a_report_does_not_replace_it(report: Path, capsys: Capture) -> None:
    before = report.read_bytes()
    assert main(["report", "--markdown", str(report)]) == 0
    assert "> Rank 3 ran out of data" in capsys.readouterr().out
    assert report.read_bytes() == before


def test_markdown_of_a_report_goes_to_a_file(report: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "verdict.md"
    assert main(["report", str(report), "--markdown", str(out)]) == 0
    assert capsys.readouterr().out == f"hangwatch: wrote {out}\n"
    assert "> Rank 3 ran out of data" in out.read_text()


def test_a_summary_can_be_shown_and_not_judged_again(report: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "summary.json"
    assert main(["report", str(report), "--summary", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    assert "Rank 3 ran out of data" in capsys.readouterr().out
    assert main(["analyze", str(out)]) == 2
    assert "a summary, without the ranks' evidence" in capsys.readouterr().err


def test_a_spoiled_report_is_named(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.json").write_text('{"schema": ')
    assert main(["report", str(tmp_path / "x.json")]) == 2
    assert "x.json is cut off or not JSON" in capsys.readouterr().err


def test_an_unwritable_place_is_named(report: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "none" / "x.html"
    assert main(["report", str(report), "--html", str(out)]) == 2
    expected = f"hangwatch: cannot write {out}: there is no folder {out.parent}; mend that or name another file\n"
    assert capsys.readouterr().err == expected


def test_the_page_given_by_mistake_names_the_report(report: Path, capsys: Capture) -> None:
    page = report.with_suffix(".html")
    assert main(["report", str(page)]) == 2
    error = capsys.readouterr().err
    assert error == f"hangwatch: {page} is the report as a page; the report itself is {report}\n"
    assert error.count(report.name) == 1
    report.unlink()
    assert main(["report", str(page)]) == 2
    assert capsys.readouterr().err.endswith(f"the report itself, {report.name}, is not beside it\n")


def test_as_markdown(report: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["report", str(report), "--markdown"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("**HUNG, proven")
    assert main(["report", str(report), "--markdown", str(tmp_path / "out.md")]) == 0
    assert (tmp_path / "out.md").read_text() == text


def test_as_a_summary(report: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.json"
    assert main(["report", str(report), "--summary", str(out)]) == 0
    assert files.read(out).verdict == examples.uneven_steps().verdict
    assert out.stat().st_size < report.stat().st_size / 3
