"""`rammer inspect`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rammer.cli.arguments import (
    DumpOption,
    EntryOption,
    JsonOption,
    ModelPath,
    TimingsOption,
    check_folder,
    check_model,
    check_new_folder,
    with_compile_options,
)
from rammer.cli.models import open_model
from rammer.cli.output import is_wide, output, print_json, say
from rammer.errors import OptionError
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.inspection.timeline import Report
    from rammer.runtime.dynamic import DynamicModel
    from rammer.runtime.estimator import CompiledEstimator
    from rammer.runtime.executable import Executable
    from rammer.runtime.programs import ProgramSet
    from rammer.runtime.tracing import TracedRun

_TRACES = 10


@with_compile_options
def inspect_command(
    model: ModelPath,
    options: CompileOptions,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List every candidate rKernel, not just the chosen.")
    ] = False,
    survey: Annotated[
        bool, typer.Option("--survey", help="Only read an ONNX file: contents, what is lacking, what would bound it.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: timelines, critical path, bounds, memory, candidates.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="With --html: run it, too, and show the quickest of ten runs.")
    ] = False,
    beside: Annotated[
        Path | None, typer.Option(help="With --html: another compiled model, to be shown on the same page.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="As --html --trace (.html), or the quickest of ten runs as a trace (.json).")
    ] = None,
    entry: EntryOption = None,
    dump_dir: DumpOption = None,
    timings: TimingsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a compiled model runs where, and why; with --survey, what a model holds before it is compiled.

    Of a model of several programs all are listed; --shape or --entry shows one of them.

    Example: rammer inspect model.rammer --html report.html --trace
    """
    _check_files(timeline, html, beside, dump_dir, traced=trace)
    if survey:
        _survey(model, options, as_json=as_json)
        return
    from rammer.cli.sets import choose, report_of
    from rammer.inspection.timings import timings_shown
    from rammer.runtime.executable import Executable

    with timings_shown(wanted=timings):
        opened = open_model(model, replace(options, dump_dir=dump_dir))
    if not isinstance(opened, Executable) and entry is None and not options.input_shapes:
        if kernels or timeline is not None or html is not None:
            raise OptionError(
                "--kernels, --html and --timeline show one program, and there are several",
                hint="choose by --shape or --entry",
            )
        _list_programs(opened, as_json=as_json)
        return
    executable = choose(opened, entry, options.input_shapes).program
    report = report_of(executable)
    if timeline is not None:
        run = _traced(executable)
        _write(timeline, run.to_html() if timeline.suffix == ".html" else run.to_perfetto())
    if html is not None:
        other = None if beside is None else choose(open_model(beside, CompileOptions()), entry, {}).program
        _write(html, _page(executable, other, str(model), str(beside), traced=trace))
    if as_json:
        print_json(report)
        return
    _print(report, executable, kernels=kernels)
    for written in (html, timeline):
        if written is not None:
            say(f"wrote {written}")


def _print(report: Report, executable: Executable, *, kernels: bool) -> None:
    """Print the tables of one program, with every candidate rKernel or the chosen ones."""
    from rammer.inspection import tables
    from rammer.inspection.report import links_of

    output.print(tables.summary(report))
    say(str(executable.signature))
    listed = tables.candidates if kernels else tables.operators
    for _, own in links_of(report):
        output.print(listed(own, wide=is_wide()))


def _check_files(
    timeline: Path | None, html: Path | None, beside: Path | None, dump_dir: Path | None, *, traced: bool
) -> None:
    """Whether the files that were named can be read and written, before anything long is done."""
    if timeline is not None:
        if timeline.suffix not in {".html", ".json"}:
            raise OptionError(f"--timeline {timeline}", hint="end its name in .html (a page) or .json (a trace)")
        check_folder("--timeline", timeline)
    if html is not None:
        check_folder("--html", html)
    elif traced or beside is not None:
        raise OptionError("--trace and --beside are of a page", hint="name its file with --html")
    if beside is not None:
        check_model("--beside", beside)
    if dump_dir is not None:
        check_new_folder("--dump-dir", dump_dir)


def _survey(model: Path, options: CompileOptions, *, as_json: bool) -> None:
    """Print what is known of a model that is not compiled."""
    from rammer.inspection.survey import page
    from rammer.pipelines.survey import survey

    found = survey(model, options)
    if as_json:
        print_json(asdict(found))
    else:
        output.print(page(found))


def _list_programs(model: DynamicModel | CompiledEstimator | ProgramSet, *, as_json: bool) -> None:
    """Print what a model of several programs holds."""
    from rammer.cli.sets import set_report
    from rammer.inspection import tables

    report = set_report(model)
    if as_json:
        print_json(report)
        return
    say(str(model))
    output.print(tables.programs(report))
    if report["estimator"] is not None:
        output.print(tables.estimator(report["estimator"]))


def _traced(executable: Executable) -> TracedRun:
    """The quickest of some runs: others may have been interrupted."""
    from rammer.runtime.arrays import random_inputs

    inputs = random_inputs(executable.signature)
    return min((executable.trace(inputs) for _ in range(_TRACES)), key=lambda run: run.total_us)


def _page(executable: Executable, other: Executable | None, name: str, beside: str, *, traced: bool) -> str:
    """The page of a model, or of two."""
    from rammer.cli.sets import report_of
    from rammer.inspection.page import Shown, to_html

    shown = []
    for model, title in ((executable, name), (other, beside)):
        if model is not None:
            report = report_of(model)
            if "links" in report:
                raise OptionError(
                    f"a page of {title}, whose loops are programs of their own",
                    hint="leave --html out: the tables are of every program",
                )
            spans_ns = _traced(model).spans_ns if traced else None
            shown.append(Shown(name=title, report=report, spans_ns=spans_ns, bounds_us=_bounds_us(report)))
    named = [one.name if other else str(one.report["name"]) for one in shown]
    return to_html(shown, f"{' and '.join(named)} on {shown[0].report['device']['name']}")


def _bounds_us(report: Report) -> Mapping[str, float]:
    """Before which times no schedule ends; none where there is no solver."""
    from rammer.schedule.bound import Edge, Problem, find_bounds

    device = report["device"]
    problem = Problem(
        candidates=[
            [(one["tasks"], one["scheduled_us"]) for one in operator["candidates"]] for operator in report["operators"]
        ],
        edges=[Edge(producer=p, consumer=c, starts=starts, ends=ends) for p, c, starts, ends in report["edges"]],
        veus=device["veus"],
        handover_us=device["handover_us"]["value"] - device["starts_early"] * device["task_overhead_us"]["value"],
    )
    try:
        found = find_bounds(problem, [operator["chosen"] for operator in report["operators"]])
    except ModuleNotFoundError:
        say("no bounds, for there is no solver: pip install 'rammer-compiler[bound]'")
        return {}
    return {
        "these rKernels": found.chosen_us,
        "any rKernels": found.any_us,
        "any, a hand-over on each dependency": found.with_handovers_us,
    }


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}", hint="name another file") from error
