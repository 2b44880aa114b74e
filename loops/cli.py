"""The command line. Every command imports what it uses when it runs, so that `vcloop --help` stays quick."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from loops import terminal
from loops.executors import ExecutorName, find_executor
from loops.terminal import Json, print_json, stop


class _Added(typer.core.TyperGroup):
    """A command that a package adds through the entry-point group `vcloop.commands`, imported when it is called."""

    def __init__(self, point: importlib.metadata.EntryPoint):
        package = importlib.import_module(point.module.partition(".")[0])
        super().__init__(name=point.name, help=(package.__doc__ or point.value).partition("\n")[0])
        self.point = point

    def make_context(self, *args: Any, **more: Any) -> Any:
        """The context of the real command."""
        return typer.main.get_command(self.point.load()).make_context(*args, **more)


class _Commands(typer.core.TyperGroup):
    """The commands here, then those that packages add."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *sorted(_added())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        ours = super().get_command(ctx, cmd_name)
        return _Added(_added()[cmd_name]) if ours is None and cmd_name in _added() else ours


@functools.cache
def _added() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group="vcloop.commands")}


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Simulate agentic evidence acquisition: run pilot loops, rescore them, and compare interpretation models.",
)
cases_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make and check case files.")
data_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, help="List data sets, and fetch them.")
app.add_typer(cases_app, name="cases")
app.add_typer(data_app, name="data")

PACKAGES = ("adapters", "benchmarks", "cases", "evidence", "interpreters", "loops", "scoring", "simulators")
Where = Annotated[ExecutorName, typer.Option(help="Where the work is done: on this machine, or on a Ray cluster.")]
Address = Annotated[
    str | None, typer.Option(help="The Ray cluster as HOST:PORT; RAY_ADDRESS, or this machine, by default.")
]
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""
SHIPPED_CASES = Path(__file__).resolve().parent.parent / "cases"


@app.command()
def run(
    config: Annotated[str, typer.Argument(help="A config file, or the name of a shipped one (vcloop settings).")],
    results: Annotated[Path, typer.Option(help="The folder that holds the run folders.")] = Path("results"),
    name: Annotated[str | None, typer.Option(help="The name of the run folder; the config's name by default.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run if it was started; else start it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a pilot loop from a config file and print its result table."""
    from loops.config import load_config, rename
    from loops.runner import run as run_loop

    loaded = load_config(config, shipped=SHIPPED_CASES)
    if name is not None:
        loaded = loaded._replace(config=rename(loaded.config, name))
    folder = results / loaded.config.name
    console = terminal.console(stderr=True)
    with terminal.progress(console) as progress:
        outcome = run_loop(loaded, folder, resume=resume, progress=progress)
    if outcome.damaged:
        console.print(f"{len(outcome.damaged)} damaged line(s) were passed over: {', '.join(outcome.damaged)}")
    _show(outcome.summary, folder, as_json)
    if outcome.record.status != "finished":
        stop(f"the run is incomplete: {outcome.record.reason}. Continue it with --resume", 1)


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(help="A sweep config (docs/config.md).")],
    results: Annotated[Path, typer.Option(help="The folder that holds the folder of the sweep.")] = Path("results"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the sweep if it was started.")] = False,
    executor: Where = ExecutorName.local,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run configs x models x seeds at once, under shared limits, and print one line for each run."""
    from loops.sweep import load_sweep
    from loops.table import print_overview

    where = find_executor(executor, address)
    plan, jobs = load_sweep(config, shipped=SHIPPED_CASES, results=results)
    with terminal.progress(terminal.console(stderr=True)) as progress:
        outcomes = where.runs(
            jobs,
            limits=plan.limits,
            concurrency=plan.concurrency,
            processes=plan.processes,
            resume=resume,
            progress=progress,
        )
    if as_json:
        print_json([outcome.summary for outcome in outcomes])
    else:
        print_overview(terminal.console(), [outcome.summary for outcome in outcomes])
        typer.echo(f"runs: {results / plan.name} (vcloop show RUN prints the whole table of one)")
    unfinished = [o for o in outcomes if o.record.status != "finished"]
    if unfinished:
        reasons = "".join(f"\n{o.record.name}: {o.record.reason}" for o in unfinished[:10])
        more = f"\nand {len(unfinished) - 10} more" if len(unfinished) > 10 else ""
        stop(f"{len(unfinished)} of {len(jobs)} runs are incomplete; --resume continues them{reasons}{more}", 1)


@app.command()
def rescore(
    run_folder: Annotated[Path, typer.Argument(help="The folder of an archived run.")],
    reparse: Annotated[bool, typer.Option("--reparse", help="Read the archived raw replies again.")] = False,
    adapter: Annotated[
        str | None, typer.Option(help="What if: score the run's simulator with this adapter; nothing is written.")
    ] = None,
    adapter_option: Annotated[
        list[str] | None, typer.Option(help="An option of --adapter as key=value; repeatable.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="What if: class all values by this threshold; nothing is written.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute the scores of a run from its archive alone, and print the table.

    With --adapter or --threshold, print what they would have given instead (docs/comparing.md). No model is called.
    """
    from loops.rescore import rescore as rescore_run

    if adapter is None and threshold is None:
        if adapter_option:
            raise typer.BadParameter("--adapter-option needs --adapter")
        _show(rescore_run(run_folder, reparse=reparse), run_folder, as_json)
        return
    from loops.config import Component
    from loops.what_if import what_if

    if reparse:
        raise typer.BadParameter("--reparse rewrites the scores; --adapter and --threshold write nothing")
    options = {key: _plain(value) for key, value in _pairs(adapter_option).items()}
    other = None if adapter is None else Component(name=adapter, options=options)
    _show(what_if(run_folder, adapter=other, threshold=threshold), run_folder, as_json)


@app.command()
def compare(
    run_folders: Annotated[
        list[Path], typer.Argument(help="Two or more run folders; several pilots, and static runs, may be mixed.")
    ],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Let runs differ in simulator, adapter, policy, modalities, budget, review or repairs; repeatable."
        ),
    ] = None,
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="Compare the cases that all runs have finished.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare interpretation models on identical cases and menus, pair by pair, from their archives.

    Exact McNemar, cluster bootstrap and sign-flip permutation by case, Holm over all pairs and pilots; runs that are
    not comparable are refused, and why (docs/comparing.md).
    """
    from loops.compare import compare as compare_runs

    found = compare_runs(run_folders, vary=vary or [], finished_only=finished_only)
    if as_json:
        print_json(found)
        return
    from loops.compare_table import print_comparison

    print_comparison(terminal.console(), found)


@app.command()
def power(
    gain: Annotated[float, typer.Option(help="The gain in paired accuracy to be found, such as 0.1 for 10 points.")],
    baseline: Annotated[
        float | None, typer.Option(help="Accuracy of the first; gives the discordance of independent mistakes.")
    ] = None,
    discordance: Annotated[
        float | None, typer.Option(help="The share of readouts that one gets right and the other wrong.")
    ] = None,
    readouts_per_case: Annotated[float | None, typer.Option(help="Readouts a case; 4 if not said.")] = None,
    icc: Annotated[
        float | None, typer.Option(help="Intraclass correlation of the differences in a case; 0.2 if not said.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Level of the two-sided test.")] = 0.05,
    wanted: Annotated[float, typer.Option("--power", help="The wanted chance to find the gain.")] = 0.8,
    from_run: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Estimate what is not said from a run (initial to revised), or from two models'."),
    ] = None,
    as_json: Json = False,
) -> None:
    """How many cases a stated gain in paired accuracy needs, with readouts clustered in cases (docs/comparing.md)."""
    from loops.power import Plan, plan, plan_lines

    given = Plan(gain, baseline, discordance, readouts_per_case, icc, alpha, wanted)
    found = plan(given, from_run or [])
    if as_json:
        print_json(found)
    else:
        for line in plan_lines(found):
            typer.echo(line)


@app.command()
def show(
    run_folder: Annotated[Path, typer.Argument(help="The folder of an archived run.")],
    case: Annotated[str | None, typer.Option(help="Show one case step by step.")] = None,
    as_json: Json = False,
) -> None:
    """Print the table of a run, or one of its cases step by step. Changes nothing."""
    from loops.rescore import compute_scores
    from loops.trace import case_trace, print_trace

    if case is None:
        _show(compute_scores(run_folder).summary, run_folder, as_json)
        return
    trace = case_trace(run_folder, case)
    if as_json:
        print_json(trace)
    else:
        print_trace(terminal.console(), trace)


@app.command()
def report(
    run_folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of archived runs.")],
    out: Annotated[Path, typer.Option(help="The folder to write; an earlier report in it is replaced.")],
) -> None:
    """Write runs as pages that open in a browser without a network: tables, charts, every case step by step."""
    from loops.report import write_report

    written = write_report(run_folders, out)
    typer.echo(f"{written.out / 'index.html'}: {written.n_cases} cases, {written.n_figures} figures")


@app.command()
def settings(as_json: Json = False) -> None:
    """List the registered components and the shipped configs."""
    from evidence.registry import REGISTRIES

    listed = {registry.kind: {name: registry.target(name) for name in registry.names()} for registry in REGISTRIES}
    shipped = {path.stem: str(path) for path in sorted(SHIPPED_CASES.glob("*.yaml"))}
    if as_json:
        print_json({"components": listed, "configs": shipped})
        return
    console = terminal.console()
    for kind, components in listed.items():
        console.print(f"{kind}: {', '.join(components)}", style="bold", highlight=False)
    console.print("shipped configs (vcloop run NAME): " + (", ".join(shipped) or "none"), highlight=False)


@app.command()
def simulate(
    simulator: Annotated[str, typer.Argument(help="The simulator to train, such as gears.")],
    config: Annotated[Path, typer.Argument(help="A training config (docs/simulators.md).")],
    work: Annotated[Path, typer.Option(help="Where trained members are kept.")] = Path("results/simulators"),
    executor: Where = ExecutorName.local,
    address: Address = None,
) -> None:
    """Train a simulator once and store its predictions as a response table. Resumes by member."""
    from loops.simulate import plan
    from loops.simulate import simulate as train

    where, console = find_executor(executor, address), terminal.console(stderr=True)
    planned = plan(simulator, config, work, lambda text: console.print(text, markup=False, highlight=False))
    made = train(planned, where)
    rows, columns = made.table.mean.shape
    typer.echo(f"{made.path}: {rows} perturbations x {columns} columns, {len(made.table.members)} members")


@app.command()
def check(
    component: Annotated[str, typer.Argument(help="A setting or another component, by its registered name.")],
    case_file: Annotated[
        Path | None, typer.Option("--cases", help="The case file to check a setting or a simulator on.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where its data is; searched for by default.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the component as key=value.")] = None,
    as_json: Json = False,
) -> None:
    """Check that a component keeps its contract, and say in plain words what it breaks."""
    from loops.checking import check_component

    options = _pairs(option)
    results = check_component(component, case_file=case_file, data=data, shipped=SHIPPED_CASES, options=options)
    broken = [r for r in results if not r.passed]
    if as_json:
        print_json([r._asdict() for r in results])
    else:
        console = terminal.console()
        for r in results:
            console.print(f"{'ok    ' if r.passed else 'BROKEN'} {r.check}: {r.promise}", highlight=False, markup=False)
            if not r.passed:
                console.print(f"       {r.detail}", highlight=False, markup=False)
    if broken:
        stop(f"{component} breaks {len(broken)} of {len(results)} checks", 1)


@cases_app.command("freeze")
def freeze_cases(
    setting: Annotated[str, typer.Argument(help="The setting that makes the file.")],
    out: Annotated[Path, typer.Option(help="The case file to write; an existing one is not replaced.")],
    shape: Annotated[str, typer.Option(help="Which cases: what the setting offers, such as published or extended.")],
    data: Annotated[Path | None, typer.Option(help="Where the data is; searched for by default.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 1,
    option: Annotated[list[str] | None, typer.Option(help="A setting's own option as key=value; repeatable.")] = None,
) -> None:
    """Freeze a case file from data: splits, thresholds, programs and cases, with the hash of the data."""
    from evidence.case_files import freeze, write_case_file

    case_file = freeze(setting, data=data, shape=shape, seed=seed, options=_pairs(option))
    write_case_file(out, case_file)
    readouts = sum(len(case.readouts) for case in case_file.cases)
    typer.echo(f"{out}: {len(case_file.cases)} cases, {readouts} readouts")


@data_app.callback()
def data_list(context: typer.Context, as_json: Json = False) -> None:
    """List the data sets: where they come from, their licence, and where they are on this machine."""
    if context.invoked_subcommand is not None:
        return
    from evidence.datasets import status

    rows = [row._asdict() for row in status()]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        typer.echo(row.pop("name"))
        for key, value in row.items():
            typer.echo(f"  {key}: {'not on this machine' if value is None else value}")


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="The data set (vcloop data lists them).")],
    case_file: Annotated[
        Path | None, typer.Option("--cases", help="For bbbc021: the case file whose plates are brought.")
    ] = None,
) -> None:
    """Bring a data set to this machine's cache, checked by its hash; nothing is done if it is there."""
    from evidence.case_files import fetch_for
    from evidence.datasets import fetch

    def say(text: str) -> None:
        typer.echo(text, err=True)

    typer.echo(str(fetch(name, progress=say) if case_file is None else fetch_for(case_file, name, say)))


def main() -> None:
    """Run the command line. Bad input ends with one message and exit code 2, a run that can be resumed with 1."""
    _guard()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character still gets the rest
    try:
        app()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            stop("interrupted; nothing that was answered is lost: a run goes on with --resume", INTERRUPTED)
        raise
    except (OSError, RecursionError, MemoryError) as error:
        stop(f"{type(error).__name__}: {error}", 2)
    except Exception as error:
        from evidence.errors import BudgetError, ReplyError, VcloopError

        if not isinstance(error, VcloopError):
            raise
        stop(str(error), 1 if isinstance(error, BudgetError | ReplyError) else 2)


def _guard() -> None:
    """Stop if one of our package names resolves to somebody else's package."""
    import importlib.util

    home = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        origin = Path(found.origin).resolve() if found is not None and found.origin else None
        if origin is None or origin.parent.parent != home:
            stop(f"the package {name!r} should come from {home}, but resolves to {origin}; remove the other one", 2)


def _pairs(options: list[str] | None) -> dict[str, str]:
    pairs = dict(_pair(text) for text in options or [])
    if len(pairs) < len(options or []):
        raise typer.BadParameter("an --option is given twice")
    return pairs


def _plain(text: str) -> object:
    """An option's value as its type wants it: a number, true, false or null where it reads as one, else the text."""
    try:
        return json.loads(text, parse_constant=lambda _: text)
    except ValueError:
        return text


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"expected key=value, got {text!r}")
    return key, value


def _show(summary: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        print_json(summary)
        return
    from loops.table import print_summary

    print_summary(terminal.console(), summary)
    typer.echo(f"run: {folder}")


if __name__ == "__main__":
    main()
