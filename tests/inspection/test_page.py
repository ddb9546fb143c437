"""The page of runs: nothing from outside, every rTask once, and what a browser makes of it."""

import copy
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.inspection.page import Shown, to_html
from rammer.inspection.timeline import bars
from tests.support.run_by_hand import REPORT, SPANS_NS
from tests.support.small_models import FLOAT, mlp_model, small_model

NASTY = "</script><script>alert('<!--')//  \\"
BY_HAND = Shown(name="by hand", report=REPORT, spans_ns=SPANS_NS, bounds_us={"these rKernels": 3.5})


def page_data(html):
    """What the page's script is given."""
    (found,) = re.findall(r"const data = (.*);\n", html)
    return json.loads(found)


@pytest.fixture(scope="module")
def traced():
    """A compiled model and the spans of a run."""
    net = rammer.compile(mlp_model(), "cpu", veus=2)
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    return Shown(name="mlp", report=net.report, spans_ns=net.trace({"x": x}).spans_ns)


def large_report(tasks, veus):
    """A report of so many rTasks of two rOperators, side by side; each vEU waits for its neighbour now and then."""
    report = copy.deepcopy(REPORT)
    own = tasks // veus
    program = [
        [
            step
            for i in range(own)
            for step in (
                *([["wait", ((veu + 1) % veus) * own + i - 1, 1]] if i % 4 == 3 else []),
                ["execute", i % 2, veu * own + i],
                ["signal", veu * own + i],
            )
        ]
        for veu in range(veus)
    ]
    report["programs"] = [program]
    report["device"]["veus"] = veus
    report["predicted"]["starts_us"] = [[[3.0 * i for i in range(own)] for _ in range(veus)]]
    return report


# --- Its data ---------------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_outside(traced):
    html = to_html([traced], "mlp")
    assert html.startswith("<!doctype html>")
    assert not re.findall(r"https?:|//[a-z]|\bsrc=|\bhref=|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\b", html)
    assert html.count("<script>") == html.count("</script>") == 1


def test_what_the_page_shows():
    data = page_data(to_html([BY_HAND], "title"))
    assert data["title"] == "title"
    assert data["kinds"] == ["Conv", "Add"]
    (model,) = data["models"]
    assert model["bounds_us"] == {"these rKernels": 3.5}
    assert [(one["name"], one["from"], one["reason"]) for one in model["operators"]] == [
        ("first", "node0 (Conv), node1 (Relu)", "the only candidate"),
        ("second", "", "fastest"),
    ]
    second = data["candidates"][model["operators"][1]["candidates"]]
    assert second[model["operators"][1]["chosen"]] == ["map", "-", "1 vector", 2, 0.9, 1.4, 1.5, "memory"]
    measured, predicted = data["runs"]
    assert [(run["name"], run["model"], run["total_us"]) for run in data["runs"]] == [
        ("measured", 0, 9.0),
        ("predicted", 0, 7.5),
    ]
    assert (measured["tasks"], measured["task_us"]) == ([2, 2], [2.99, 4.9])
    assert (measured["busy_us"], measured["waiting_us"]) == ([2.99, 4.9], 3.0)
    assert (measured["cuts_us"], measured["awaited"]) == ([5.0], ["first"])
    assert measured["bars"] == {
        "veu": [0, 0, 1, 1, 1],
        "operator": [0, 0, -1, 1, 1],
        "tile": [0, 1, 0, 0, 1],
        "start": [0, 1010, 100, 3100, 5000],
        "end": [1000, 3000, 3100, 4000, 9000],
    }
    assert (measured["critical"], measured["critical_us"]) == ([0, 1, 3, 4], 7.89)
    assert predicted["bars"]["end"] == [1000, 2000, 2500, 4000, 7500]


def test_equal_candidates_are_held_once(traced):
    data = page_data(to_html([traced, traced], "twice"))
    assert len(data["candidates"]) == len({json.dumps(one) for one in data["candidates"]})
    assert data["models"][0]["operators"] == data["models"][1]["operators"]


def test_two_models_stand_side_by_side():
    data = page_data(to_html([BY_HAND, Shown(name="other", report=REPORT)], "two"))
    assert [run["name"] for run in data["runs"]] == ["by hand, measured", "by hand, predicted", "other, predicted"]
    assert [run["model"] for run in data["runs"]] == [0, 0, 1]


def test_every_rtask_is_on_the_page(traced):
    for run in page_data(to_html([traced], "mlp"))["runs"]:
        drawn = {place for place in zip(run["bars"]["operator"], run["bars"]["tile"], strict=True) if place[0] >= 0}
        assert drawn == {
            (bar.operator, bar.tile) for bar in bars(traced.report, traced.spans_ns) if bar.operator is not None
        }


def test_names_cannot_break_out_of_the_page():
    nodes = [helper.make_node("Relu", ["x"], ["y"], name=NASTY)]
    net = rammer.compile(small_model(nodes, {"x": (FLOAT, (4,))}, {"y": (FLOAT, (4,))}, name=NASTY), "reference")
    html = net.trace({"x": np.ones(4, np.float32)}).to_html(NASTY)
    assert html.count("</script>") == 1
    assert "<!--" not in html
    data = page_data(html)
    assert data["title"] == NASTY
    assert NASTY in data["models"][0]["operators"][0]["from"]


def test_a_run_without_rtasks_is_a_page_too():
    nodes = [helper.make_node("Constant", [], ["y"], name="constant", value_float=1.0)]
    net = rammer.compile(small_model(nodes, {}, {"y": (FLOAT, ())}), "reference")
    data = page_data(net.trace({}).to_html("nothing"))
    assert data["runs"][0]["total_us"] > 0


# --- In a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What a browser makes of a page after a script: its text, and the rows of operators that one sees."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")

    def show(html, script=""):
        folder = tmp_path_factory.mktemp("browser")
        page = folder / "page.html"
        failing = "<script>addEventListener('error', event => document.body.append('FAILED ' + event.message))</script>"
        html = html.replace("<body>", f"<body>{failing}").replace("</body>", f"<script>{script}</script></body>")
        page.write_text(html, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
        done = subprocess.run([browser, *options, page.as_uri()], capture_output=True, text=True, check=True)
        dom = re.sub(r"<(script|style)>.*?</\1>", "", done.stdout, flags=re.DOTALL)
        assert "FAILED" not in dom
        rows = re.findall(r"<tr([^>]*)><td class=\"name\"[^>]*>([^<]*)<", dom)
        return " ".join(re.sub(r"<[^>]*>", " ", dom).split()), [name for hidden, name in rows if "hidden" not in hidden]

    return show


def test_the_legend_tells_what_the_picture_has(shown):
    text, rows = shown(to_html([BY_HAND], "by hand"))
    assert "Add Conv waiting critical path all units meet, and the next rProgram begins" in text
    assert "bound, these rKernels 3.5 µs" in text
    assert "critical path 4 rTasks, 7.89 µs; 1.11 µs between them" in text
    assert rows == ["second", "first"]
    one = {**REPORT, "programs": REPORT["programs"][:1], "predicted": {"starts_us": [[[0.0, 1.0], [2.5]]]}}
    alone = Shown(name="by hand", report=one, spans_ns=SPANS_NS[:1])
    assert "the next rProgram begins" not in shown(to_html([alone], "by hand"))[0]


@pytest.mark.parametrize(
    ("script", "rows", "share"),
    [
        ("find('search').value = 'NODE1'; find('search').dispatchEvent(new Event('input'))", ["first"], "37.9 %"),
        ("find('legend').children[0].click()", ["second"], "62.1 %"),
        ("for (const i of [0, 0, 1]) find('legend').children[i].click()", ["first"], "37.9 %"),
    ],
    ids=["by name", "by kind", "by another kind"],
)
def test_operators_are_found(shown, script, rows, share):
    text, seen = shown(to_html([BY_HAND], "by hand"), script)
    assert seen == rows
    assert f"1 of 2 rOperators, {share} of the time computing" in text


POINT = """
const view = views[%d], i = %d, { veu, start, end } = view.run.bars;
const offsetX = view.x((start[i] + end[i]) / 2000), offsetY = view.head() + (veu[i] - view.top + 0.3) * view.lane;
view.point({ offsetX, offsetY, clientX: 0, clientY: 0 });
"""


def test_pointing_at_an_rtask_says_what_it_is(shown):
    text, _ = shown(to_html([BY_HAND], "by hand"), POINT % (0, 3))
    assert "second [0] 0.9 µs on vEU 1, from 3.10 to 4.00 µs Add: 2 rTasks, 4.9 µs in all map - 1 vector" in text
    assert "predicted 1.5 µs, bound by memory; chosen: fastest waited 3 µs for first" in text
    assert "predicted: 1.5 µs on vEU 1, from 2.50 to 4.00 µs on the critical path" in text
    assert "waiting for first 3 µs on vEU 1" in shown(to_html([BY_HAND], "by hand"), POINT % (0, 2))[0]


def test_candidates_of_an_rtask_are_listed(shown):
    text, _ = shown(to_html([BY_HAND], "by hand"), "find('operators').children[0].click()")
    assert "Candidates of second Chosen: fastest." in text
    assert "▸ map - 1 vector 2 0.90 1.40 1.50 1.50 3.00 memory" in text


def test_two_models_begin_beside_each_other(shown):
    script = "document.body.append(views.map(view => view.run.name).join(' and '))"
    text, _ = shown(to_html([BY_HAND, Shown(name="other", report=REPORT)], "two"), script)
    assert text.endswith("by hand, measured and other, predicted")


def test_any_run_can_stand_beside_another(shown):
    script = (
        "views[1].show(2); find('path').click(); document.body.append(views[1].note.textContent + ' ' + views.length)"
    )
    text, _ = shown(to_html([BY_HAND, Shown(name="other", report=REPORT)], "two"), script)
    assert text.endswith("7.5 µs 2")


def test_a_page_of_50_000_rtasks_opens_and_draws_what_is_in_sight(shown):
    script = """
        let drawn = 0;
        const fill = CanvasRenderingContext2D.prototype.fillRect;
        CanvasRenderingContext2D.prototype.fillRect = function (...given) { drawn += 1; fill.apply(this, given); };
        function count(begin, end) { drawn = 0; from = begin; to = end; draw(); return drawn; }
        const whole = [from, to];
        document.body.append(`${sum(runs[0].tasks)} rTasks, ${count(500, 506)} of ${count(...whole)} rectangles`);
    """
    html = to_html([Shown(name="large", report=large_report(50_160, 132))], "large")
    text, _ = shown(html, script)
    found = re.search(r"50160 rTasks, (\d+) of (\d+) rectangles", text)
    assert found is not None
    assert 132 * 2 < int(found[1]) < 132 * 12 < int(found[2])
