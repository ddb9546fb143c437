"""One program of an image network and gradient-boosted trees: the trees take the network's last features.

`python examples/image_and_trees.py` cuts the classifier off the network in `examples/digits`, fits boosted trees on its
features, writes both as one ONNX file and compiles that. Needs `pip install '.[sklearn]'`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

import rammer

NETWORK = Path(__file__).parent / "digits" / "digits.onnx"
FEATURES = "flatten.out"


def network_up_to_features() -> onnx.ModelProto:
    """The network without its classifier."""
    model = onnx.load(NETWORK)
    nodes = [node for node in model.graph.node if node.output[0] != "logits"]
    read = {name for node in nodes for name in node.input}
    weights = [weight for weight in model.graph.initializer if weight.name in read]
    features = helper.make_tensor_value_info(FEATURES, onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "features", model.graph.input, [features], weights)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def with_trees(model: onnx.ModelProto, trees: GradientBoostingClassifier) -> onnx.ModelProto:
    """The network with scores of classes by the trees, and the class of the greatest."""
    nodes: dict[str, list[Any]] = {name: [] for name in ("tree", "id", "feature", "threshold", "yes", "no", "mode")}
    leaves: dict[str, list[Any]] = {name: [] for name in ("tree", "node", "class", "weight")}
    for number, (member, of_class) in enumerate(
        (member, of_class) for stage in trees.estimators_ for of_class, member in enumerate(stage)
    ):
        tree = member.tree_
        is_leaf = tree.children_left < 0
        rounded = tree.threshold.astype(np.float32)
        lower = np.nextafter(rounded, np.float32(-np.inf))  # no float32 lies between a threshold and that below it
        nodes["tree"] += [number] * tree.node_count
        nodes["id"] += range(tree.node_count)
        nodes["feature"] += np.maximum(tree.feature, 0).tolist()
        nodes["threshold"] += np.where(rounded > tree.threshold, lower, rounded).tolist()
        nodes["yes"] += np.maximum(tree.children_left, 0).tolist()
        nodes["no"] += np.maximum(tree.children_right, 0).tolist()
        nodes["mode"] += np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist()
        leaves["tree"] += [number] * int(is_leaf.sum())
        leaves["node"] += np.flatnonzero(is_leaf).tolist()
        leaves["class"] += [of_class] * int(is_leaf.sum())
        leaves["weight"] += (trees.learning_rate * tree.value[is_leaf, 0, 0]).tolist()
    count = len(trees.classes_)
    base = trees._raw_predict_init(np.zeros((1, trees.n_features_in_), np.float32))[0]
    head = [
        helper.make_node(
            "TreeEnsembleRegressor",
            [FEATURES],
            ["scores"],
            domain="ai.onnx.ml",
            n_targets=count,
            base_values=base.tolist(),
            nodes_treeids=nodes["tree"],
            nodes_nodeids=nodes["id"],
            nodes_featureids=nodes["feature"],
            nodes_values=nodes["threshold"],
            nodes_truenodeids=nodes["yes"],
            nodes_falsenodeids=nodes["no"],
            nodes_modes=nodes["mode"],
            target_treeids=leaves["tree"],
            target_nodeids=leaves["node"],
            target_ids=leaves["class"],
            target_weights=leaves["weight"],
        ),
        helper.make_node("ArgMax", ["scores"], ["digit"], axis=1, keepdims=0),
    ]
    digit = helper.make_tensor_value_info("digit", onnx.TensorProto.INT64, [1])
    body = model.graph
    graph = helper.make_graph([*body.node, *head], "image_and_trees", body.input, [digit], body.initializer)
    opsets = [*model.opset_import, helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)


def main() -> None:
    """Fit, join, compile, compare."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None, None]
    network = network_up_to_features()
    features_of = rammer.compile(network)
    features = np.concatenate([features_of(image) for image in images])
    known, unseen, labels, wanted = train_test_split(np.arange(len(images)), digits.target, random_state=0)
    trees = GradientBoostingClassifier(n_estimators=15, max_depth=3, max_features=8, random_state=0)
    trees.fit(features[known], labels)

    net = rammer.compile(with_trees(network, trees))
    found = np.array([net(images[place])[0] for place in unseen])
    assert (found == trees.predict(features[unseen])).all()
    print(
        f"{np.mean(found == wanted):.1%} of unseen digits are read; scikit-learn's trees on the features read the same"
    )
    print("one program:", ", ".join(operator["kind"] for operator in net.report["operators"][-4:]), "come last")


if __name__ == "__main__":
    main()
