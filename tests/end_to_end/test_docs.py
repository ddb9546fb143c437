"""The documents say what is so: links lead somewhere, tables are complete, examples run, quotations are current."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from rammer import errors
from rammer.devices.registry import DEVICES, find_device
from rammer.errors import RammerError
from rammer.frontends.onnx import flow
from rammer.frontends.onnx.converters import CONVERTERS, elementwise
from rammer.frontends.onnx.functions import STANDARD
from rammer.operators.builder import GraphBuilder
from rammer.options import CompileOptions
from rammer.passes.pipeline import run_passes
from rammer.schedule.policies import POLICIES
from rammer.verify import chain, graph, program, tasks
from tests.support import measured_chart, models_together, traced_example
from tests.support.traced_example import PAGE, PICTURE, Example
from tests.support.walkthroughs import ROOT, blocks, change, check_made, copy_tree, programs, pytest_arguments

DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/**/*.md")])
WALKTHROUGHS = sorted(DOCS.glob("adding-*.md"))
MADE = DOCS / "adding-an-operator.md"
"""The one whose changes the tree holds."""
VERIFIERS: tuple[tuple[str, ModuleType], ...] = (("G", graph), ("T", tasks), ("P", program), ("C", chain))

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
OUR_FILE = re.compile(r"(?:src|tests|docs|examples|benchmarks|\.ci)/[\w./*-]+|[\w/]+\.(?:py|md|toml|[ch])")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def rows(page: str, first_cell: str) -> Iterator[list[str]]:
    """The cells of table rows whose first cell matches."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and re.fullmatch(first_cell, cells[0]):
            yield [cell.strip("| ") for cell in cells]


def execute(code: str, namespace: dict[str, object]) -> None:
    """Run Python that a page shows."""
    exec(compile(code, "page", "exec"), namespace)  # noqa: S102


# --- All pages


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page):
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@every_page
def test_lists_begin_after_an_empty_line(page):
    """Where the repository's own page shows a list without one, the site shows a paragraph."""
    lines = FENCED.sub("", page.read_text(encoding="utf-8")).splitlines()
    starts = [line for before, line in pairwise(lines) if line.startswith("- ") and not re.match(r"- |  |$", before)]
    assert starts == []


def test_pictures_are_svg_with_words_for_those_who_do_not_see_them():
    for picture in sorted((DOCS / "images").iterdir()):
        text = picture.read_text(encoding="utf-8")
        assert picture.suffix == ".svg"
        assert "<title" in text
        assert "<desc" in text
        assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("*.md")), README, ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name)
def test_files_that_are_named_exist(page):
    """Names of files in backquotes: whole paths, or paths below `src/rammer`, one of its rooms or a folder of tests."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    created = {block.label.removeprefix("new file: ") for block in blocks(page.read_text(encoding="utf-8"))}
    for name in {name for code in CODE.findall(text) for name in OUR_FILE.findall(code) if code == name}:
        known = any(next(base.glob(name.rstrip("/")), None) for base in (ROOT, *bases()))
        assert known or any(path.endswith(name) for path in created) or "<" in name, name


def bases() -> Iterator[Path]:
    package = ROOT / "src" / "rammer"
    yield package
    yield from (folder for folder in sorted(package.rglob("*")) if folder.is_dir() and folder.name != "__pycache__")


# --- README


def cache_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compilation cache that the tests of this file share."""
    return tmp_path_factory.getbasetemp() / "cache"


@pytest.fixture
def workplace(tmp_path, monkeypatch, tmp_path_factory):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache_of(tmp_path_factory)))
    return tmp_path


def test_python_of_the_readme_runs(workplace):
    (workplace / "examples").symlink_to(ROOT / "examples")
    namespace: dict[str, object] = {}
    found = [block.text for block in blocks(README.read_text(encoding="utf-8")) if block.language == "python"]
    assert found
    for code in found:
        execute(code, namespace)


def test_commands_of_the_readme_run(workplace):
    (workplace / "examples").symlink_to(ROOT / "examples")
    scripts = Path(sys.executable).parent
    commands = [line for code in fenced(README, "rammer ") for line in code.splitlines()]
    assert {line.split()[1] for line in commands} == {"compile", "run", "bench", "inspect", "devices", "doctor"}
    for line in commands:
        command = line.partition("  #")[0]
        done = subprocess.run(f"{scripts}/{command}", shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)


def fenced(page: Path, start: str) -> list[str]:
    found = [block.text for block in blocks(page.read_text(encoding="utf-8")) if block.text.startswith(start)]
    assert found
    return found


def test_readme_names_the_targets_that_make_has():
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README.read_text(encoding="utf-8"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= targets


def test_usage_names_all_variables_devices_and_policies():
    page = text_of("usage.md")
    variables = set(re.findall(r'_variable\("(\w+)"', inspect.getsource(sys.modules[CompileOptions.__module__])))
    assert variables <= set(re.findall(r"`([A-Z_]+)`", page))
    assert all(f"`{name}`" in page for name in (*DEVICES, *POLICIES))


# --- Tables


def test_operators_are_those_with_a_converter():
    own, microsoft = text_of("operators.md").split("\n## ")[0].split("Of `com.microsoft`")
    named = [name for row in rows(own, r"[\w' ]+") for name in re.findall(r"`([\w.]+)`", row[-1])]
    domain = "com.microsoft."
    assert sorted(named) == sorted({*(name for name in CONVERTERS if not name.startswith(domain)), *STANDARD})
    assert f"{len(named)} operators" in own
    others = [domain + name for row in rows(microsoft, r"[\w ]+") for name in re.findall(r"`(\w+)`", row[-1])]
    assert sorted(others) == sorted(name for name in CONVERTERS if name.startswith(domain))


def test_operators_that_sizes_flow_through_are_those_with_a_rule():
    page = text_of("operators.md").split("\n## Results whose size depends on the data")[1].split("\n## ")[0]
    named = [name for row in rows(page, r"[`\w ]+") for name in re.findall(r"`(\w+)`", row[0])]
    families = {*elementwise.CONVERTERS, "Dropout"}
    assert sorted(named) == sorted({*flow.RULES, "If"} - families)


def rules_of(module: ModuleType) -> dict[str, str]:
    """A verifier's rules by code: its `RULES`, or the table in its docstring."""
    listed = getattr(module, "RULES", None)
    return dict(listed or re.findall(r"^\| (\w\d\d) \| (.*) \|$", module.__doc__ or "", re.MULTILINE))


@pytest.mark.parametrize(("letter", "module"), VERIFIERS, ids=lambda value: getattr(value, "__name__", value))
def test_invariants_are_the_verifiers(letter, module):
    documented = {row[0]: row[1] for row in rows(text_of("invariants.md"), rf"{letter}\d\d")}
    assert documented == rules_of(module)


def test_every_code_of_the_verifiers_is_documented_and_tested():
    codes = set()
    for file in (ROOT / "src/rammer/verify").glob("*.py"):
        codes.update(re.findall(r'"([GTPC]\d\d)"', file.read_text(encoding="utf-8")))
    assert codes == {row[0] for row in rows(text_of("invariants.md"), r"[GTPC]\d\d")}
    tested = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/verify/test_*.py"))
    assert {code for code in codes if f'"{code}"' not in tested} == set()


def test_glossary_names_what_there_is():
    entries = list(rows(text_of("glossary.md"), r"[\w ,'()-]+"))
    checked = 0
    for _, names, files, *_ in (row for row in entries if len(row) >= 4 and "`" in row[1]):
        sources = [(ROOT / "src/rammer" / file).read_text(encoding="utf-8") for file in CODE.findall(files)]
        for name in CODE.findall(names):
            last = name.rpartition(".")[2]
            pattern = rf"^\s*(?:class|def) {last}\b|^\s*{last}\b\s*[:=]"
            assert any(re.search(pattern, source, re.MULTILINE) for source in sources), name
            checked += 1
    assert checked > 20


def test_architecture_names_all_passes_in_order():
    ran: dict[str, None] = {}
    empty = GraphBuilder("empty").build([])
    run_passes(empty, find_device("reference").describe(CompileOptions()), lambda name, _: ran.setdefault(name))
    assert [row[0].strip("`") for row in rows(text_of("architecture.md"), r"`\w+`")] == list(ran)


def test_index_of_decisions_is_complete():
    index = text_of("adr/README.md")
    pages = [page for page in sorted((DOCS / "adr").glob("*.md")) if page.name != "README.md"]
    for number, page in enumerate(pages, 1):
        title = page.read_text(encoding="utf-8").splitlines()[0]
        assert title.startswith(f"# {number:04d}: ")
        assert f"| [{number:04d}]({page.name}) | {title.partition(': ')[2]} |" in index


def test_index_of_documents_is_complete():
    linked = set(LINK.findall(text_of("README.md")))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= linked


# --- Errors


SECTION = re.compile(r"^### (?:(R\d+) )?(\w+)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
ERROR_SECTIONS = [found.groups() for found in SECTION.finditer(text_of("errors.md"))]


def _marks(section):
    """The marks of an example, with the libraries that it needs."""
    libraries = {"torch": "import torch", "classical": "from sklearn"}
    return {mark: line.split()[1] for mark, line in libraries.items() if line in section}


def test_errors_are_all_documented():
    classes = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, RammerError)]
    coded = {(kind.code, kind.__name__) for kind in classes if "code" in vars(kind) and kind is not RammerError}
    documented = {(code, name) for code, name, _ in ERROR_SECTIONS if code is not None}
    assert documented == coded
    assert "VerificationError" in {name for _, name, _ in ERROR_SECTIONS}


@pytest.mark.filterwarnings("ignore::rammer.runtime.artifact.RebuiltWarning")
@pytest.mark.parametrize(
    ("code", "name", "section"),
    [
        pytest.param(*found, id=found[1], marks=[getattr(pytest.mark, mark) for mark in _marks(found[2])])
        for found in ERROR_SECTIONS
    ],
)
def test_failing_example_fails_and_its_repair_does_not(workplace, code, name, section):
    for library in _marks(section).values():
        pytest.importorskip(library)
    page = text_of("errors.md")
    namespace: dict[str, object] = {}
    examples = {block.label: block.text for block in blocks(section) if block.label}
    (setup,) = [block.text for block in blocks(page) if block.label == "setup"]
    execute(setup, namespace)
    for label, example in examples.items():
        if label == "repaired":
            execute(example, namespace)
        else:
            assert label.startswith("fails")
            with pytest.raises(getattr(errors, name)) as caught:
                execute(example, namespace)
            assert caught.value.code == (code or label.removeprefix("fails with "))
    assert list(blocks(section))


# --- The traced example


@pytest.fixture(scope="module")
def example() -> Example:
    return Example()


STALE = "what the compiler writes has changed: run python -m tests.support.traced_example, and read the page again"


def test_quotations_are_current(example):
    page = PAGE.read_text(encoding="utf-8")
    assert len(traced_example.QUOTE.findall(page)) > 5
    assert traced_example.quoted(page, example) == page, STALE


def test_picture_of_the_run_is_current(example):
    assert traced_example.picture(example) == PICTURE.read_text(encoding="utf-8"), STALE


def test_picture_of_several_models_is_current():
    stale = "run python -m tests.support.models_together"
    assert models_together.picture() == models_together.PICTURE.read_text(encoding="utf-8"), stale


def test_the_chart_shows_the_table():
    page = README.read_text(encoding="utf-8")
    assert [row.network for row in measured_chart.rows(page)][-2:] == ["LSTM-TC", "Seq2Seq"]
    stale = "the README's table has changed: run python -m tests.support.measured_chart"
    assert measured_chart.picture(page) == measured_chart.PICTURE.read_text(encoding="utf-8"), stale


def test_what_the_page_says_of_the_run_is_so(example):
    tasks = example.quote("tasks", "")
    assert "Concat" not in tasks
    assert "t8+[0, 16, 0, 0] = Conv(" in tasks
    graph = example.quote("fuse", "graph")
    assert "BatchNormalization" not in graph
    assert "Reshape" not in graph
    queues = [queue.splitlines()[1:] for queue in example.quote("program", "").split("  program 0, vEU")[1:]]
    steps = [[line.split() for line in queue] for queue in queues]
    executed = [[step for step in queue if step[0] != "signal"] for queue in steps]
    assert [queue[:3] for queue in executed] == [
        [["execute", f"{name}[{veu}]"] for name in ("relu", "pool", "conv1")] for veu in range(2)
    ], STALE
    assert [step for step in executed[0][3:] if step[0] == "wait" or "average" in step[1]] == [
        ["wait", "c0", ">=", "1"],
        ["execute", "average[0]"],
        ["wait", "c1", ">=", "1"],
        ["execute", "average[1]"],
    ], STALE
    assert executed[1][3:] == [], STALE


# --- Walk-throughs


def test_the_operator_of_the_walkthrough_is_as_the_page_says():
    check_made(text_of(MADE.name), ROOT)


@pytest.fixture
def changed(request, tmp_path, tmp_path_factory, monkeypatch):
    """A copy of the tree with the changes of a page; the tree itself where it holds them."""
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache_of(tmp_path_factory)))
    if request.param == MADE:
        return ROOT
    copy_tree(tmp_path)
    change(request.param.read_text(encoding="utf-8"), tmp_path)
    return tmp_path


every_walkthrough = pytest.mark.parametrize(
    ("changed", "page"),
    [(page, page) for page in WALKTHROUGHS],
    indirect=["changed"],
    ids=[page.stem for page in WALKTHROUGHS],
)


def run_in(tree: Path, *command: str) -> None:
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@every_walkthrough
def test_walkthrough_works(changed, page):
    code = programs(page.read_text(encoding="utf-8"))
    assert code
    for text in code:
        run_in(changed, "-c", f"import rammer\nassert rammer.__file__.startswith({str(changed)!r})\n" + text)


@pytest.mark.long
@every_walkthrough
def test_tests_of_the_walkthrough_pass(changed, page):
    commands = pytest_arguments(page.read_text(encoding="utf-8"))
    assert commands
    for arguments in commands:
        run_in(changed, "-m", "pytest", "-p", "no:cacheprovider", *arguments)
