"""`vcloop bench`: the commands of the static benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loops import terminal
from loops.terminal import Json, print_json

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Static figure benchmarks: check, convert, run, judge and compare them.",
)

RunFolder = Annotated[Path, typer.Argument(help="The folder of an archived run.")]
RunFolders = Annotated[list[Path], typer.Argument(help="The folders of archived runs.")]
Results = Annotated[Path, typer.Option(help="The folder that holds the run folders.")]
Name = Annotated[str | None, typer.Option(help="The name of the run folder; the config's name by default.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run if it was started; else start it.")]
Images = Annotated[Path | None, typer.Option(help="The folder of the images; beside the items by default.")]
RESULTS = Path("results")


@app.command()
def check(
    items: Annotated[Path, typer.Argument(help="An item file (JSON lines).")],
    images: Images = None,
    as_json: Json = False,
) -> None:
    """Check an item file and its images; every problem is listed with its line."""
    from collections import Counter

    from benchmarks.items import load_item_set

    found = load_item_set(items, images)
    facts = {
        "items": len(found.items),
        "images": len(found.images),
        "image_bytes": sum(image.n_bytes for image in found.images.values()),
        "sources": len({item.cluster for item in found.items}),
        "options": dict(sorted(Counter(str(len(item.options)) for item in found.items).items())),
        "levels": dict(sorted(Counter(item.level or "none" for item in found.items).items())),
        "sha256": found.sha256,
    }
    if as_json:
        print_json(facts)
    else:
        _say("\n".join(f"{key}: {value}" for key, value in facts.items()))


@app.command()
def convert(
    form: Annotated[str, typer.Argument(help="spur, figqa, microvqa, vlmeval, or mapped.")],
    source: Annotated[Path, typer.Argument(help="The file to read; for spur, the folder of its files.")],
    out: Annotated[Path, typer.Option(help="The item file to write; an existing one is not replaced.")],
    images: Images = None,
    mapping: Annotated[Path | None, typer.Option("--map", help="For mapped: the mapping file.")] = None,
    without_images: Annotated[bool, typer.Option("--without-images", help="Leave images out of the items.")] = False,
    keep_good: Annotated[
        bool, typer.Option("--keep-good", help="Write the good items although others are bad.")
    ] = False,
) -> None:
    """Turn another benchmark's file into an item file. Images that come inside it are written beside it."""
    from benchmarks.convert import convert as read
    from benchmarks.items import write_items
    from evidence.errors import DataError
    from evidence.files import write_atomic

    if out.exists():
        raise DataError(f"{out} exists; choose another --out")

    def keep(name: str, data: bytes) -> None:
        write_atomic(out.parent / name, data)

    found = read(form, source, images=images, mapping=mapping, without_images=without_images, keep=keep)
    for problem in found.problems:
        _say(problem, err=True)
    if not found.items or (found.problems and not keep_good):
        raise DataError(
            f"{source}: {len(found.problems)} problem(s), {len(found.items)} good items; nothing was written"
            + (" (--keep-good writes the good ones)" if found.items else "")
        )
    write_atomic(out, write_items(found.items))
    _say(f"{out}: {len(found.items)} items, {len(found.problems)} problem(s)")


@app.command()
def audit(items: Annotated[Path, typer.Argument(help="An item file.")], as_json: Json = False) -> None:
    """List items whose right option alone differs in polarity from all the others."""
    from benchmarks.items import load_items
    from benchmarks.tracks import odd_ones

    found = load_items(items)
    odd = odd_ones(found)
    if as_json:
        print_json([one._asdict() for one in odd])
        return
    for one in odd:
        _say(f"{one.item}: the key says {one.key}, all others say {one.others}")
    _say(f"{len(odd)} of {len(found)} items")


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="A config file, or the name of a shipped one (cases/bench).")],
    results: Results = RESULTS,
    name: Name = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Run a track over an item file and print its table."""
    from benchmarks.answers import Answering
    from benchmarks.config import load_bench
    from loops.config import rename

    loaded = load_bench(config)
    if name is not None:
        loaded = loaded._replace(config=rename(loaded.config, name))
    _make(Answering(loaded, results / loaded.config.name), resume, as_json)


@app.command()
def judge(
    run_folder: Annotated[Path, typer.Argument(help="The folder of a finished run of the track open.")],
    config: Annotated[str, typer.Option(help="The judge's config.")],
    results: Results = RESULTS,
    name: Name = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Let a judge score the responses of an open run."""
    from benchmarks.config import load_judge
    from benchmarks.judging import Judging
    from loops.config import rename

    settings, interpreter = load_judge(config)
    settings = settings if name is None else rename(settings, name)
    _make(Judging(settings, interpreter, run_folder, results / settings.name), resume, as_json)


@app.command()
def mine(
    judge_runs: Annotated[list[Path], typer.Argument(help="Folders of judge runs on the same items.")],
    config: Annotated[str, typer.Option(help="The config of the model that rewrites.")],
    results: Results = RESULTS,
    name: Name = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Make distractors of low-scored responses: six-option items (scores/items.jsonl), their origin (trace.jsonl)."""
    from benchmarks.config import load_miner
    from benchmarks.mining import Mining
    from loops.config import rename

    settings, interpreter = load_miner(config)
    settings = settings if name is None else rename(settings, name)
    _make(Mining(settings, interpreter, judge_runs, results / settings.name), resume, as_json)


@app.command()
def rescore(
    run_folder: RunFolder,
    reparse: Annotated[bool, typer.Option("--reparse", help="Read the archived raw replies again.")] = False,
    as_json: Json = False,
) -> None:
    """Recompute the scores of a benchmark run from its archive alone, and print the table."""
    from benchmarks.archived import rescore_bench
    from benchmarks.judging import rescore_judge
    from benchmarks.mining import rescore_mining
    from loops.archive import read_run

    match read_run(run_folder, None).kind:
        case "judge":
            summary = rescore_judge(run_folder, reparse=reparse)
        case "mine":
            summary = rescore_mining(run_folder)
        case _:
            summary = rescore_bench(run_folder, reparse=reparse)
    _show(summary, run_folder, as_json)


@app.command("filter")
def shortcut_filter(
    run_folder: Annotated[Path, typer.Argument(help="A no_image run with shuffled options and ten repeats.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the kept items here; an existing file is not replaced.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Discard items that are answered right without their figure in five of ten shuffled tries or more."""
    from benchmarks.archived import shortcut_items
    from benchmarks.items import write_items
    from evidence.errors import DataError
    from evidence.files import write_atomic

    if out is not None and out.exists():
        raise DataError(f"{out} exists; choose another --out")
    kept, found = shortcut_items(run_folder)
    if out is not None:
        write_atomic(out, write_items(kept))
    if as_json:
        print_json([{**one._asdict(), "discard": one.discard} for one in found])
        return
    for one in found:
        if one.discard:
            _say(f"discard {one.item}: {one.n_right} of {one.n} right without the figure")
    _say(f"{len(kept)} of {len(found)} items kept")


@app.command()
def compare(run_folders: RunFolders, as_json: Json = False) -> None:
    """Compare runs on the same items answer by answer: exact McNemar, sign flip over sources, Holm over all pairs."""
    from benchmarks.compare import compare as pairs_of
    from benchmarks.table import print_pairs

    found = pairs_of(run_folders)
    print_json(found) if as_json else print_pairs(terminal.console(), found)


@app.command()
def agree(run_folders: RunFolders, as_json: Json = False) -> None:
    """How judges of the same responses agree on the overall score."""
    from benchmarks.compare import agree as agreement
    from benchmarks.table import print_agreement

    found = agreement(run_folders)
    print_json(found) if as_json else print_agreement(terminal.console(), found)


@app.command()
def beside(
    run_folders: Annotated[list[Path], typer.Argument(help="Folders of static runs (or judge runs) and of loop runs.")],
    as_json: Json = False,
) -> None:
    """Put static scores beside loop gains, one row a model, with the correlation over models."""
    from loops.beside import read_summary, static_beside_loop
    from loops.compare_table import print_beside

    summaries = [read_summary(folder) for folder in run_folders]
    static = [s for s in summaries if s.get("kind") in ("bench", "judge")]
    found = static_beside_loop(static, [s for s in summaries if "kind" not in s])
    print_json(found) if as_json else print_beside(terminal.console(), found)


def _say(text: str, *, err: bool = False) -> None:
    """Print a line that may hold words of a file: nothing in it is executed by a terminal."""
    from loops.trace import printable

    typer.echo(printable(text), err=err)


def _make(work: Any, resume: bool, as_json: bool) -> None:
    """Make a run and show how it ended."""
    from loops.engine import make

    console = terminal.console(stderr=True)
    with terminal.progress(console) as progress:
        outcome = make(work, resume=resume, progress=progress)
    if outcome.damaged:
        console.print(f"{len(outcome.damaged)} damaged line(s) were passed over: {', '.join(outcome.damaged)}")
    _show(outcome.summary, work.folder, as_json)
    if outcome.record.status != "finished":
        terminal.stop(f"the run is incomplete: {outcome.record.reason}", 1)


def _show(summary: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    from benchmarks.table import print_summary

    print_summary(terminal.console(), summary)
    _say(f"run: {folder}")
