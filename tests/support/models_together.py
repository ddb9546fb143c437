"""The example of docs/several-models.md: two models in one program, and the picture of its run.

python -m tests.support.models_together      # writes docs/images/several-models.svg anew
"""

from __future__ import annotations

from pathlib import Path

from examples.two_branches import build_model
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.options import CompileOptions
from rammer.pipelines.together import Model, plan_together
from rammer.roller.model import ModelCosts
from rammer.schedule.simulator import simulate
from tests.support.run_picture import COLOURS, Words, drawn

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "several-models.svg"
VEUS = 4
_LANE = 78


def picture() -> str:
    """The predicted run of both models as SVG, a colour for each."""
    options = CompileOptions(veus=VEUS)
    vdevice = find_device("reference").describe(options)
    models = {"digits": load_graph(ROOT / "examples/digits/digits.onnx"), "two_branches": load_graph(build_model())}
    plan = plan_together([Model(name=name, graph=graph) for name, graph in models.items()], vdevice, options)
    names = [operator.name.partition(":") for operator in plan.graph.operators]
    colours = dict(zip(models, COLOURS, strict=False))
    words = Words(
        title="Two models in one program on four vEUs",
        description="The predicted run: one model on two vEUs, beside it the other, which takes these over.",
        caption="two_branches (yellow) on two vEUs, digits (blue) beside it, then on all. Dashed lines are hand-overs.",
    )
    timeline = simulate(plan.graph, plan.schedule, vdevice, ModelCosts(vdevice))
    labels = [own for _, _, own in names]
    return drawn(plan, timeline, words, [colours[model] for model, _, _ in names], labels, _LANE)


def main() -> None:
    """Write the picture anew."""
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
