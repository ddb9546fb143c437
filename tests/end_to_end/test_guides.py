"""The pages for those who use Rammer: their Python and their commands are run in order, as a reader would."""

import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import rammer
from rammer import cli
from tests.support.walkthroughs import ROOT, blocks

GUIDES = ("first-steps", "shapes", "serving", "several-models", "deployment", "slow", "kernel-channels")
WITH_PYTORCH = ("first-steps", "shapes")
LONGEST = {"first-steps": 60, "kernel-channels": 130}  # lines; the latter has the code of kernels
LONGEST_OTHERWISE = 90

every_guide = pytest.mark.parametrize("name", GUIDES)


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture
def follow(monkeypatch, tmp_path, tmp_path_factory):
    """Run a page's blocks in order, in an empty folder with the examples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    def run(command):
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code in (0, None), command

    def all_blocks(text, *, pytorch):
        namespace = {"__name__": "page"}
        ran = 0
        for block in blocks(text):
            if block.language == "python":
                if pytorch or "import torch" not in block.text:
                    exec(compile(block.text, "page", "exec"), namespace)  # noqa: S102
                    ran += 1
                continue
            for command in block.text.splitlines():
                if command.startswith("pip install"):
                    check_installable(command)
                else:
                    run(command)
                    ran += 1
        return ran

    return all_blocks


def check_installable(command):
    """`make package` installs; here the extras are those that there are."""
    program, verb, what = shlex.split(command)
    assert (program, verb, what[0]) == ("pip", "install", ".")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(filter(None, what[1:].strip("[]").split(","))) <= set(project["optional-dependencies"])


@every_guide
def test_guide_works(follow, name):
    if name == "first-steps":  # a model with the same input stands in for the module
        rammer.compile(str(ROOT / "examples/digits/digits.onnx")).save("classifier.rammer")
    assert follow(page(name), pytorch=False) >= 2
    if "timeline.html" in page(name):
        assert Path("timeline.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.torch
@pytest.mark.parametrize("name", WITH_PYTORCH)
def test_guide_works_with_pytorch(follow, name):
    pytest.importorskip("torch")
    assert follow(page(name), pytorch=True) > 2


def test_guides_with_pytorch_are_those_that_import_it():
    assert [name for name in GUIDES if "import torch" in page(name)] == list(WITH_PYTORCH)


@every_guide
def test_guide_is_short(name):
    assert len(page(name).splitlines()) <= LONGEST.get(name, LONGEST_OTHERWISE)
