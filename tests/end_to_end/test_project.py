"""Files around the code say what the code says, and files of code are short."""

import ast
import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import rammer

ROOT = Path(__file__).resolve().parents[2]


def targets():
    """The targets of the Makefile that are meant to be called."""
    return set(re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_files(*endings):
    folders = ("src", "tests", "benchmarks", "examples")
    return [file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in endings]


def has_room_for_a_long_function(text):
    """Whether so many lines lie between a function and the next that is not in it, which is quicker than to parse."""
    heads = [(text.count("\n", 0, found.start()), len(found[1])) for found in re.finditer(r"(?m)^( *)def ", text)]
    heads.append((text.count("\n"), 0))
    ends = [next(line for line, inner in heads[i + 1 :] if inner <= indent) for i, (_, indent) in enumerate(heads[:-1])]
    return any(end - start > 60 for (start, _), end in zip(heads, ends, strict=False))


def lines_of(function):
    """The lines of a function, without those of its docstring."""
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    return function.end_lineno - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if documented else 0)


def test_no_file_of_code_has_more_than_500_lines():
    files = code_files(".py", ".c", ".cpp", ".h", ".cu", ".cuh")
    assert len(files) > 500
    assert [file.name for file in files if file.read_bytes().count(b"\n") > 500] == []


def test_no_function_has_more_than_60_lines():
    texts = [file.read_text() for file in code_files(".py")]
    trees = [ast.parse(text) for text in texts if has_room_for_a_long_function(text)]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 300
    assert [function.name for function in functions if lines_of(function) > 60] == []


def test_one_version():
    assert f"version: {rammer.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert rammer.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_the_workflow_calls_targets_that_there_are():
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    called = set(re.findall(r"run: make ([a-z-]+)", workflow)) | set(re.findall(r"target: \[?([a-z-]+)", workflow))
    assert {"check", "test", "package"} <= called
    assert called <= targets()


def test_hooks_run_what_make_check_runs():
    hooks = re.findall(r"entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    recipe = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split(".PHONY")[0]
    for hook in hooks:
        tool, *arguments = hook.removeprefix(".venv/bin/").split()
        assert f"$(VENV)/bin/{tool} {arguments[0] if arguments else ''}".strip() in recipe
    assert len(hooks) == recipe.count("$(VENV)/bin/")


@pytest.fixture
def hook(monkeypatch):
    """The package's metadata as `hatchling`, which need not be here, would make them: a function of the environment."""
    base = type("MetadataHookInterface", (), {"root": str(ROOT)})
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", SimpleNamespace(MetadataHookInterface=base))

    def run(address):
        monkeypatch.setenv("RAMMER_ADDRESS", address)
        metadata = {"version": rammer.__version__}
        runpy.run_path(str(ROOT / "hatch_build.py"))["Metadata"]().update(metadata)
        return metadata

    return run


def test_a_release_says_where_the_project_lives(hook):
    found = hook("https://example.org/rammer/")
    text, version = found["readme"]["text"], rammer.__version__
    assert found["urls"]["Issues"] == "https://example.org/rammer/issues"
    assert f"](https://example.org/rammer/raw/v{version}/docs/images/tiles.svg)" in text
    assert f"](https://example.org/rammer/blob/v{version}/docs/first-steps.md)" in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert all(link.startswith("https://") for link in links)
    for link in links:
        if link.startswith("https://example.org/rammer/"):
            assert (ROOT / link.split(f"/v{version}/")[1].partition("#")[0]).exists()


def test_without_an_address_the_readme_is_the_repositorys(hook):
    assert hook("") == {
        "version": rammer.__version__,
        "readme": {"content-type": "text/markdown", "text": (ROOT / "README.md").read_text()},
    }


def test_the_pythons_that_are_named_are_those_that_are_tested():
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text()
    (tested,) = re.findall(r"python: \[(.+)\]", workflow)
    assert re.findall(r"3\.\d+", tested) == named
    assert f"Python {named[0]} to {named[-1]}" in (ROOT / "CONTRIBUTING.md").read_text()
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert requires == f">={named[0]}"
