"""The report's files: what they say, that data stays data, that nothing else is touched, and that bytes repeat."""

import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from evidence.errors import ArchiveError
from loops import cli
from loops.answers import Answers
from loops.archive import read_run
from loops.blocks import MISSING
from loops.columns import Columns, Row
from loops.report import charts, panels, write_report
from loops.report.collect import Tally, collect, tally
from loops.report.files import script
from loops.report.published import PUBLISHED
from loops.rescore import compute_scores
from loops.run_events import STAGES


@pytest.fixture(scope="module")
def report(hostile_runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(list(hostile_runs), tmp_path_factory.mktemp("report") / "out").out


def test_static_runs_that_cannot_be_paired_leave_the_rest_of_the_report(hostile_runs, tmp_path: Path) -> None:
    static = tmp_path / "static"
    shutil.copytree(hostile_runs[0], static)
    record = json.loads((static / "run.json").read_text())
    (static / "run.json").write_text(json.dumps({**record, "kind": "bench"}))
    asked = {"kind": "bench", "track": "mcq", "items_sha256": "x", "run": "s", "interpreter": record["interpreter"]}
    scores = {**asked, "accuracy": {"value": 0.5, "low": None, "high": None}}
    (static / "scores" / "summary.json").write_text(json.dumps(scores))
    twin = tmp_path / "again"
    shutil.copytree(hostile_runs[0], twin)
    page = write_report([hostile_runs[0], twin, static], tmp_path / "out").out / "index.html"
    assert "Not shown: two loop runs of" in page.read_text()


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def chunk(report: Path, name: str) -> dict:
    """The data that a chunk hands to the page; every chunk is one call with JSON arguments."""
    text = (report / "data" / name).read_text("ascii")
    found = re.fullmatch(r"vcloop\.chunk\((\d+),(\d+),(\{.*\})\);\n", text)
    assert found, text[:80]
    return json.loads(found[3])


def cases(report: Path) -> dict:
    text = (report / "data/cases.js").read_text("ascii")
    return json.loads(text.removeprefix("vcloop.index(").removesuffix(");\n"))


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of the page."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_published_figures_are_those_of_the_paper() -> None:
    rows = {p.setting: p for p in PUBLISHED}
    assert list(rows) == ["gene_pair", "drug_combination", "microscopy", "signaling"]
    accuracies = [(p.initial, p.reviewed, p.revised, p.corrections, p.regressions) for p in PUBLISHED]
    assert accuracies == [
        (77.1, 77.1, 89.6, 6, 0),
        (93.3, 80.0, 100.0, 2, 0),
        (66.7, 66.7, 66.7, 0, 0),
        (66.7, 60.0, 70.0, 1, 0),
    ]
    assert sum(p.n_cases for p in PUBLISHED) == 36
    for p in PUBLISHED:  # each accuracy is a whole number of right readouts, and changes add up
        for value in (p.initial, p.reviewed, p.revised):
            assert abs(value / 100 * p.n_readouts - round(value / 100 * p.n_readouts)) < 0.03
        assert round((p.revised - p.initial) / 100 * p.n_readouts) == p.corrections - p.regressions


def test_the_overview_says_what_the_summary_says(report: Path, hostile_runs) -> None:
    page = Tags((report / "index.html").read_text("utf-8"))
    for folder in hostile_runs:
        summary = compute_scores(folder).summary
        assert read_run(folder).name in page.text
        for row in summary["rows"]:
            assert row["name"] in page.text
            assert f"{100 * row['all']['accuracy']['value']:.1f}" in page.text
    assert "77.1 %" in page.text
    assert "arXiv 2609.37773" in page.text
    assert "No run of this pilot in this report." in page.text
    assert page.text.count("SYNTHETIC") >= 6  # both runs, wherever they are named


def test_synthetic_is_not_said_of_real_data(tmp_path: Path) -> None:
    reference = Path(__file__).resolve().parents[2] / "results/signaling-reference"
    page = (write_report([reference], tmp_path / "out").out / "index.html").read_text("utf-8")
    assert "SYNTHETIC" not in page
    assert cases(tmp_path / "out")["runs"][0]["synthetic"] is False


def test_hostile_words_are_data_everywhere(report: Path) -> None:
    for name in ("index.html", "traces.html"):
        page = Tags((report / name).read_text("utf-8"))
        assert [t for t, _ in page.tags].count("script") == (name == "traces.html")
        assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
        assert not [a for t, a in page.tags if t in ("iframe", "object", "embed", "form") and "id" not in a]
        urls = [a[k] for _, a in page.tags for k in ("src", "href") if k in a]
        assert all(re.fullmatch(r"#[\w.-]+|(index|traces)\.html(#[\w=.&-]+)?", url) for url in urls), urls
    for path in (report / "data").iterdir():
        data = path.read_bytes()
        assert not set(data) & set(b"<>&\x00\x1b")
        assert data.isascii()
        assert data.count(b"\n") == 1


def test_a_trace_holds_the_replies_as_they_came(report: Path, hostile_runs) -> None:
    found = chunk(report, "r1-0.js")
    trace = dict(found["cases"])[0]
    steps = {s["step"]: s for s in trace["repeats"][0]["steps"]}
    assert list(steps) == ["predict", "review", "select", "observe", "calibrate", "revise"]
    reply = steps["review"]["calls"][0]["text"]
    assert "</script><script>" in reply
    assert "\u2028" in reply
    assert "\x1b[31m" in reply
    assert steps["review"]["status"] != "ok"
    assert [a["readout"] for a in steps["predict"]["answers"]] == ["HSP70", "HSP90", "CDC6"]
    truth = {t.readout: t.label for t in _opened(hostile_runs.scripted)}
    assert {r["id"]: r["truth"]["label"] for r in trace["about"]["readouts"]} == truth
    assert len(trace["about"]["sealed"]) == 3


def _opened(folder: Path) -> tuple:
    from loops.archive import Opened, read_events

    return next(e for e in read_events(folder)[0] if isinstance(e, Opened)).truth


def test_figures_are_copied_once_and_checked(report: Path, hostile_runs, tmp_path: Path) -> None:
    figures = {p.stem: p for p in (report / "figures").iterdir()}
    assert figures
    for sha256, path in figures.items():
        assert path.suffix == ".png"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    copy = tmp_path / "run"
    shutil.copytree(hostile_runs.scripted, copy)
    for name, damage in zip(sorted(figures), (None, b"<svg onload=alert(1)>"), strict=False):
        blob = copy / "blobs" / name
        if damage is None:
            blob.unlink()
        else:
            blob.write_bytes(damage)
    out = write_report([copy], tmp_path / "out").out
    lost = dict(cases(out)["unreadable"])
    assert lost == dict.fromkeys(sorted(figures)[:2], "missing or damaged in the archive")
    assert not {p.stem for p in (out / "figures").iterdir()} & set(lost)


def test_the_same_archives_give_the_same_bytes(report: Path, hostile_runs, tmp_path: Path) -> None:
    moved = []
    for folder in hostile_runs:
        moved.append(tmp_path / "elsewhere" / folder.name)
        shutil.copytree(folder, moved[-1])
    assert files(write_report(moved, tmp_path / "again").out) == files(report)


def test_a_report_is_replaced_whole_and_nothing_else_is(hostile_runs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report(list(hostile_runs), out)
    stale = out / "data/r9-9.js"
    stale.write_text("old")
    write_report([hostile_runs.rules], out)
    assert not stale.exists()
    assert not (out / "data/r1-0.js").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ArchiveError, match=r"files of yours in it \(notes.txt\)"):
        write_report([hostile_runs.rules], out)
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("place", "words"),
    [("other", "exists and is not a report"), ("file", "is a file"), ("run/page", "is inside the run folder")],
)
def test_no_other_folder_is_written(hostile_runs, tmp_path: Path, place: str, words: str) -> None:
    shutil.copytree(hostile_runs.rules, tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    before = files(tmp_path)
    with pytest.raises(ArchiveError, match=words):
        write_report([tmp_path / "run"], tmp_path / place)
    assert files(tmp_path) == before


def test_a_broken_archive_leaves_the_old_report(hostile_runs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_report([hostile_runs.rules], out)
    before = files(out)
    shutil.copytree(hostile_runs.rules, tmp_path / "run")
    calls = tmp_path / "run/calls.jsonl"
    calls.write_bytes(calls.read_bytes() + b'{"case":"another"}\n')
    with pytest.raises(ArchiveError, match="another"):
        write_report([tmp_path / "run"], out)
    assert files(out) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "run"]


def test_a_run_is_named_once(hostile_runs, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="named twice"):
        write_report([hostile_runs.rules, hostile_runs.rules], tmp_path / "out")
    shutil.copytree(hostile_runs.rules, tmp_path / "copy")
    labels = [run.label for run in collect([hostile_runs.rules, tmp_path / "copy"])]
    assert labels == ["heat-rules (1)", "heat-rules (2)"]


def test_cases_of_one_case_file_are_one_row(report: Path) -> None:
    index = cases(report)
    assert len(index["cases"]) == 4
    assert [[entry[0] for entry in row[2]] for row in index["cases"]] == [[0, 1]] * 4
    assert "complete" in index["outcomes"]


def test_an_open_case_is_shown_as_not_finished(hostile_runs, tmp_path: Path) -> None:
    shutil.copytree(hostile_runs.rules, tmp_path / "run")
    events = tmp_path / "run/events.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(line for line in lines if b'"closed"' not in line or b"slow-growth" not in line))
    out = write_report([tmp_path / "run"], tmp_path / "out").out
    index = cases(out)
    names = [[n for i, n in enumerate(index["outcomes"]) if row[2][0][2] & (1 << i)] for row in index["cases"]]
    assert names == [["complete"]] * 3 + [["not finished"]]
    assert index["cases"][3][2][0][3:] == [0] * 7
    assert dict(chunk(out, "r0-0.js")["cases"])[3]["repeats"][0]["outcome"] == "not finished"


def _columns(rows: list[tuple[str, str, str | None, str | None, str | None]]) -> Columns:
    """Columns of readouts: case, truth, and the labels of the three stages."""
    columns, code = Columns(("a", "b"), Answers()), {"down": 0, "up": 1, None: MISSING}
    columns.case = np.array([("a", "b").index(case) for case, *_ in rows])
    columns.truth = np.array([code[truth] for _, truth, *_ in rows])
    for n, stage in enumerate(STAGES):
        columns.rows[stage] = Row(np.array([code[row[2 + n]] for row in rows]), np.zeros(len(rows)))
        columns.given[stage] = np.ones(len(rows), dtype=bool)
    return columns


def test_tallies() -> None:
    rows = [
        ("a", "up", "up", "up", "up"),
        ("a", "up", "down", "up", "up"),
        ("a", "up", "up", None, "down"),
        ("a", "up", None, "up", "up"),
        ("b", "up", "down", "down", "down"),
    ]
    assert tally(_columns(rows)) == {
        "a": Tally(n=4, initial=2, reviewed=3, revised=3, corrections=1, regressions=1, missing=2),
        "b": Tally(n=1),
    }


def test_a_script_is_one_line_of_ascii_that_gives_the_data_back() -> None:
    value = {"text": "</script>\u2028\x00\ud800 & <b>", "n": [1, None]}
    made = script("index", value)
    assert made.isascii()
    assert not set(made) & set(b"<>&\x00")
    assert json.loads(made.decode().removeprefix("vcloop.index(").removesuffix(");\n")) == value


def test_charts_escape_and_keep_to_their_scale() -> None:
    axis = charts.Axis("<b>", 0, 1, charts.ticks(0, 1, 0.5))
    points = [charts.Point(0, 0), charts.Point(1, 1)]
    drawn = charts.plot("k", "<script>", "a & b", axis, axis, [charts.Series("s", points, joined=True)])
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn
    assert 'aria-labelledby="k-title k-about"' in drawn
    assert 'width="46.70%"' in charts.bar("revised", 0.467, 0.3, 0.6)
    assert "rect" not in charts.bar("revised", None, None, None)
    assert 'x="50.00%" y="4" width="25.00%"' in charts.signed_bar(0.25, None, None, 0.5)
    assert charts.markers([0.5, 0.5, 0.9]).count('y="24"') == 1  # the second of two equal ones goes below


CURVE = [{"low": 0.5, "high": 0.6, "n": 4, "confidence": 0.55, "accuracy": 0.75}]
FOUND = {"n": 4, "brier": 0.2, "ece": 0.2, "curve": CURVE}


def test_calibration_panels_follow_the_summary() -> None:
    none = {"n": 0, "brier": None, "ece": None, "curve": []}
    summary = {
        "calibration": {
            "initial": {"confidence": FOUND, "probabilities": none},
            "simulator alone": {
                "probabilities": FOUND,
                "coverage": {"n": 4, "n_without_sd": 0, "covered": {"0.5": 1, "0.95": 4}},
            },
        }
    }
    curves = panels.calibration_curves(summary, "k")
    assert [c.names for c in curves] == [("initial",), ("simulator alone",)]
    assert curves[0].numbers == [("initial", 4, 0.2, 0.2)]
    covered = panels.coverage(summary)
    assert covered == panels.Covered(("0.5", "0.95"), [("simulator alone", 4, (0.25, 1.0))])
    assert panels.calibration_curves({}, "k") == []
    assert panels.coverage({"calibration": {}}) is None


def test_choices_are_counted_by_regret_and_gain() -> None:
    def way(right: float, gain: int = 0, expected: float | None = None) -> dict:
        return {"right": right, "gain": gain, "expected_gain": expected}

    rows = [
        {"oracle": way(3), "chosen": way(2, 1, 0.6), "eig": way(3), "eag": None, "random": {"right": 2.4}},
        {"oracle": way(3), "chosen": way(3, 2, 0.1), "eig": way(3), "eag": None, "random": {"right": 2.4}},
        {"oracle": None, "chosen": None, "eig": None, "eag": None, "random": None},
    ]
    choices = panels.count_choices(rows)
    assert choices.regrets == {"chosen": {1: 1, 0: 1}, "eig": {0: 2}, "random": {0.5: 2}}
    assert choices.gains == {(0.5, 1): 1, (0.0, 2): 1}
    assert "oracle" in str(panels.regret_plot(choices, "k"))
    assert panels.gain_plot(choices, "k") is not None
    assert panels.regret_plot(panels.count_choices([]), "k") is None


def test_the_script_makes_no_markup_from_text(root: Path) -> None:
    source = (root / "loops/report/static/traces.js").read_text()
    assert "textContent" in source
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", source)


def test_the_command(hostile_runs, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["report", str(hostile_runs.rules), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "4 cases" in done.output
    assert (tmp_path / "out/index.html").is_file()
