"""Train the handwritten-digit network of this example and write it as ONNX.

The data are scikit-learn's bundled 8x8 digits (E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten
Digits, UCI Machine Learning Repository, doi:10.24432/C50P49). One fifth of the images, with every digit in
its share, is held out: the network never trains on these, and the accuracy reported is theirs.

    python train.py [--seed N] [--epochs N] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10
SIDE_PIXELS = 8
PIXEL_MAX = 16
HELD_OUT_SHARE = 0.2
SPLIT_SEED = 0  # apart from --seed, so that every seed is measured on the same images

BATCH_IMAGES = 64
PEAK_LEARNING_RATE = 0.01
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
MAX_ROTATION_DEGREES = 12.0
MAX_STRETCH = 0.12
MAX_SHIFT_PIXELS = 1.0

OPSET = 17
IR_VERSION = 8  # the format that came with opset 17: older readers accept the file
MAX_LOGIT_DIFFERENCE = 1e-4  # between PyTorch and ONNX Runtime, of logits of a few units


class ConvNorm(nn.Module):
    """A same-padded convolution without bias, then batch normalization."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        normalized: Tensor = self.bn(self.conv(x))
        return normalized


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a strided 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        reshapes = inputs != outputs or stride != 1
        self.shortcut = ConvNorm(inputs, outputs, kernel=1, stride=stride) if reshapes else None

    def forward(self, x: Tensor) -> Tensor:
        carried = x if self.shortcut is None else self.shortcut(x)
        hidden = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(hidden)) + carried)


class DigitNetwork(nn.Module):
    """Float32 images [N, 1, 8, 8] in 0..1 to logits [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(1, 16, kernel=3)
        self.block1 = Block(16, 16)
        self.block2 = Block(16, 32, stride=2)
        self.block3 = Block(32, 32)
        self.classifier = nn.Linear(32, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.stem(images))
        x = self.block3(self.block2(self.block1(x)))
        logits: Tensor = self.classifier(x.mean(dim=(2, 3)))
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """Images, uint8 [N, 8, 8] with values 0..16, and their labels, int64 [N] with values 0..9."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def network_input(self) -> npt.NDArray[np.float32]:
        """The images as the network takes them: float32 [N, 1, 8, 8] in 0..1."""
        return self.images[:, np.newaxis].astype(np.float32) / np.float32(PIXEL_MAX)

    def accuracy(self, logits: npt.NDArray[np.float32]) -> float:
        """The share of images whose largest logit, of [N, 10], is that of their label."""
        return float(np.mean(logits.argmax(axis=1) == self.labels))


def split_digits() -> tuple[Digits, Digits]:
    """The images to train on and the held-out ones, each with every digit in its share."""
    bundled = load_digits()
    images, labels = bundled.images.astype(np.uint8), bundled.target.astype(np.int64)
    train_images, held_out_images, train_labels, held_out_labels = train_test_split(
        images, labels, test_size=HELD_OUT_SHARE, stratify=labels, random_state=SPLIT_SEED
    )
    train_digits = Digits(images=train_images, labels=train_labels)
    return train_digits, Digits(images=held_out_images, labels=held_out_labels)


def distort(images: Tensor) -> Tensor:
    """Each image of [N, 1, 8, 8] a little rotated, stretched and shifted, at random."""
    angle, stretch_x, stretch_y, shift_x, shift_y = torch.rand(5, len(images)) * 2 - 1
    angle = angle * math.radians(MAX_ROTATION_DEGREES)
    stretch_x = 1 + MAX_STRETCH * stretch_x
    stretch_y = 1 + MAX_STRETCH * stretch_y
    unit_per_pixel = 2 / SIDE_PIXELS  # affine_grid counts from -1 to 1 across the image
    row_x = [angle.cos() * stretch_x, -angle.sin() * stretch_y, shift_x * MAX_SHIFT_PIXELS * unit_per_pixel]
    row_y = [angle.sin() * stretch_x, angle.cos() * stretch_y, shift_y * MAX_SHIFT_PIXELS * unit_per_pixel]
    transforms = torch.stack([torch.stack(row_x, dim=1), torch.stack(row_y, dim=1)], dim=1)
    grid = functional.affine_grid(transforms, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def train(digits: Digits, *, epochs: int, seed: int) -> DigitNetwork:
    """Train a network from random weights; the result is in evaluation mode."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of sums, and so the weights, must not follow the number of cores
    images = torch.from_numpy(digits.network_input())
    labels = torch.from_numpy(digits.labels)
    network = DigitNetwork()
    optimizer = torch.optim.AdamW(network.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_LEARNING_RATE, epochs=epochs, steps_per_epoch=math.ceil(len(images) / BATCH_IMAGES)
    )
    for epoch in range(1, epochs + 1):
        loss_sum = 0.0
        order = torch.randperm(len(images))
        for start in range(0, len(images), BATCH_IMAGES):
            batch = order[start : start + BATCH_IMAGES]
            logits = network(distort(images[batch]))
            loss = functional.cross_entropy(logits, labels[batch], label_smoothing=LABEL_SMOOTHING)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            loss_sum += loss.item() * len(batch)
        print(f"epoch {epoch:3d}/{epochs}  loss {loss_sum / len(images):.4f}")
    network.eval()
    return network


class OnnxNodes:
    """Collects the network's nodes: every layer stays a node of its own, batch normalization included.

    A node has the name of its layer, a constant its name in the state dictionary, and a value the name of its
    node with `.out` behind it. Each method appends nodes and returns the name of the value they compute.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def network(self, network: DigitNetwork, image: str, *, output: str) -> str:
        x = self._relu("stem.relu", self._conv_norm("stem", network.stem, image))
        x = self._block("block1", network.block1, x)
        x = self._block("block2", network.block2, x)
        x = self._block("block3", network.block3, x)
        x = self._node("GlobalAveragePool", "pool", [x])
        x = self._node("Flatten", "flatten", [x])
        operands = [x, "classifier.weight", "classifier.bias"]
        return self._node("Gemm", "classifier", operands, output, transB=1)

    def _block(self, name: str, block: Block, x: str) -> str:
        carried = x if block.shortcut is None else self._conv_norm(f"{name}.shortcut", block.shortcut, x)
        x = self._norm(f"{name}.bn1", block.bn1, self._conv(f"{name}.conv1", block.conv1, x))
        x = self._relu(f"{name}.relu1", x)
        x = self._norm(f"{name}.bn2", block.bn2, self._conv(f"{name}.conv2", block.conv2, x))
        x = self._node("Add", f"{name}.add", [x, carried])
        return self._relu(f"{name}.relu2", x)

    def _conv_norm(self, name: str, layer: ConvNorm, x: str) -> str:
        return self._norm(f"{name}.bn", layer.bn, self._conv(f"{name}.conv", layer.conv, x))

    def _conv(self, name: str, layer: nn.Conv2d, x: str) -> str:
        kernel, strides = list(layer.kernel_size), list(layer.stride)
        pads = [size // 2 for size in kernel] * 2  # each layer keeps the size, up to its stride
        operands = [x, f"{name}.weight"]
        return self._node("Conv", name, operands, kernel_shape=kernel, strides=strides, pads=pads)

    def _norm(self, name: str, layer: nn.BatchNorm2d, x: str) -> str:
        constants = [f"{name}.{constant}" for constant in ("weight", "bias", "running_mean", "running_var")]
        return self._node("BatchNormalization", name, [x, *constants], epsilon=layer.eps)

    def _relu(self, name: str, x: str) -> str:
        return self._node("Relu", name, [x])

    def _node(
        self, operator: str, name: str, inputs: list[str], output: str = "", **attributes: float | list[int]
    ) -> str:
        value = output or f"{name}.out"
        node = helper.make_node(operator, inputs, [value], name=name)
        node.attribute.extend(helper.make_attribute(key, setting) for key, setting in attributes.items())
        self.nodes.append(node)
        return value


def onnx_model(network: DigitNetwork, metadata: dict[str, str]) -> onnx.ModelProto:
    """The model with input `image` [1, 1, 8, 8] and output `logits` [1, 10], both float32."""
    writer = OnnxNodes()
    logits = writer.network(network, "image", output="logits")
    constants = [
        numpy_helper.from_array(constant.numpy(), name)
        for name, constant in network.state_dict().items()
        if not name.endswith(".num_batches_tracked")
    ]
    graph = helper.make_graph(
        writer.nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, SIDE_PIXELS, SIDE_PIXELS])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, CLASSES])],
        constants,
    )
    opset_imports = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset_imports, ir_version=IR_VERSION)
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return model


def torch_logits(network: DigitNetwork, digits: Digits) -> npt.NDArray[np.float32]:
    """The network's float32 logits [N, 10]."""
    with torch.no_grad():
        logits: npt.NDArray[np.float32] = network(torch.from_numpy(digits.network_input())).numpy()
    return logits


def onnx_logits(path: Path, digits: Digits) -> npt.NDArray[np.float32]:
    """The float32 logits [N, 10] that ONNX Runtime computes from the file, image by image."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rows = [session.run(["logits"], {"image": image[np.newaxis]})[0] for image in digits.network_input()]
    return np.concatenate(rows)


def main() -> None:
    """Train, measure on the held-out images, write both files, and check that the file computes the same."""
    parser = argparse.ArgumentParser(description="Train the digit network and write it as ONNX.")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the distortions (default: 0)")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the images (default: 60)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder (default: the script's)")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error("--epochs must be at least 1")
    arguments.out.mkdir(parents=True, exist_ok=True)

    train_digits, held_out = split_digits()
    network = train(train_digits, epochs=arguments.epochs, seed=arguments.seed)
    expected = torch_logits(network, held_out)
    accuracy = held_out.accuracy(expected)
    metadata = {
        "held_out_accuracy": f"{accuracy:.4f}",
        "held_out_images": str(len(held_out.labels)),
        "seed": str(arguments.seed),
        "epochs": str(arguments.epochs),
        "parameters": str(sum(parameter.numel() for parameter in network.parameters())),
        "data": "Optical Recognition of Handwritten Digits, doi:10.24432/C50P49",
    }
    model_path = arguments.out / "digits.onnx"
    onnx.save(onnx_model(network, metadata), model_path)
    np.savez_compressed(arguments.out / "held_out.npz", images=held_out.images, labels=held_out.labels)

    actual = onnx_logits(model_path, held_out)
    difference = float(np.abs(actual - expected).max())
    if difference > MAX_LOGIT_DIFFERENCE or held_out.accuracy(actual) != accuracy:
        raise SystemExit(f"{model_path} differs from the trained network by {difference:.1e} in a logit")
    print(f"held-out accuracy {accuracy:.2%} of {len(held_out.labels)} images, seed {arguments.seed}")
    print(f"the same in ONNX Runtime; logits differ by at most {difference:.1e}")


if __name__ == "__main__":
    main()
