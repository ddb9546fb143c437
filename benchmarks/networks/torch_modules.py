"""The networks as a PyTorch user writes them, with the weights of a model from `benchmarks.networks`.

Those of the Rammer paper are here, the others in `torch_transformers` and `torch_convnets`: the only files of the
package that import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import alexnet, deepspeech2, few_bits, nasnet, resnext
from benchmarks.networks.builder import Array
from benchmarks.networks.torch_convnets import ConvNext, EfficientNet, MobileNet, ResNet
from benchmarks.networks.torch_transformers import Bert, Llama, Vit, Whisper


def torch_module(name: str, model: onnx.ModelProto, **sizes: Any) -> nn.Module:  # noqa: ANN401 - each network has sizes of its own
    """Network `name` in evaluation mode, its parameters copied from the initialisers of `model`.

    `sizes` are those that `model` was built with and that the module takes: neither the batch nor the length
    of an input sequence. The module maps `module_inputs` to the model's output, or to a tuple of its outputs. Raises
    KeyError for an unknown name, RuntimeError when the sizes do not fit the model.
    """
    module = MODULES[name](**sizes)
    module.load_state_dict(_state_dict(model, module.state_dict().keys()), strict=True)
    return module.eval()


def module_inputs(name: str, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
    """The inputs of the model of network `name` as its module takes them."""
    tensors = [as_tensor(array) for array in inputs.values()]
    return Llama.with_room(*tensors) if name == "llama" else tuple(tensors)


class ResNeXtBranch(nn.Module):
    """A 1x1 and a 3x3 convolution, the latter in `groups` groups."""

    def __init__(self, inputs: int, width: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=resnext.EPSILON)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps=resnext.EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)))


class ResNeXtBlock(nn.Module):
    """Branches side by side, or one grouped branch; the shortcut pools and pads where the block shrinks."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, cardinality: int, width: int, grouped: bool) -> None:
        super().__init__()
        branches, groups = (1, cardinality) if grouped else (cardinality, 1)
        self.branches = nn.ModuleList(
            ResNeXtBranch(inputs, groups * width, stride=stride, groups=groups) for _ in range(branches)
        )
        self.conv = nn.Conv2d(cardinality * width, outputs, 1, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=resnext.EPSILON)
        self.stride = stride
        self.margin = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn(self.conv(torch.cat([branch(x) for branch in self.branches], dim=1)))
        if self.stride == 2:
            x = functional.pad(functional.avg_pool2d(x, 2), (0, 0, 0, 0, self.margin, self.margin))
        return functional.relu(y + x)


class ResNeXt(nn.Module):
    """`benchmarks.networks.resnext`."""

    def __init__(
        self,
        *,
        blocks: int = 3,
        cardinality: int = 16,
        width: int = 64,
        classes: int = 10,
        grouped: bool = False,
    ) -> None:
        super().__init__()
        inputs = resnext.STAGE_CHANNELS[0]
        self.conv = nn.Conv2d(3, inputs, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(inputs, eps=resnext.EPSILON)
        self.stages = nn.Sequential()
        for outputs in resnext.STAGE_CHANNELS:
            stage = nn.Sequential()
            for _ in range(blocks):
                stride = 1 if inputs == outputs else 2
                stage.append(
                    ResNeXtBlock(inputs, outputs, stride=stride, cardinality=cardinality, width=width, grouped=grouped)
                )
                inputs = outputs
            self.stages.append(stage)
        self.fc = nn.Linear(inputs, classes, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        x: Tensor = self.stages(functional.relu(self.bn(self.conv(image))))
        logits: Tensor = self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


class NasNetProjection(nn.Module):
    """ReLU, 1x1 convolution, batch normalisation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=nasnet.EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn(self.conv(functional.relu(x)))
        return y


class NasNetReduction(nn.Module):
    """The projection at half the resolution, from even and from odd positions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.conv1 = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=nasnet.EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(x)
        y: Tensor = self.bn(torch.cat([self.conv0(x), self.conv1(x[:, :, 1:, 1:])], dim=1))
        return y


class NasNetSeparable(nn.Module):
    """One half of a separable operation: ReLU, depthwise and pointwise convolution, batch normalisation."""

    def __init__(self, channels: int, *, kernel: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(
            channels, channels, kernel, stride=stride, padding=kernel // 2, groups=channels, bias=False
        )
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.bn = nn.BatchNorm2d(channels, eps=nasnet.EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn(self.pointwise(self.depthwise(functional.relu(x))))
        return y


def _nasnet_operation(operation: nasnet.Operation, channels: int, cell_stride: int) -> nn.Module:
    stride = cell_stride if operation.source in (nasnet.CURRENT, nasnet.PREVIOUS) else 1
    kernel, padding = operation.kernel, operation.kernel // 2
    match operation.kind:
        case "separable":
            return nn.Sequential(
                NasNetSeparable(channels, kernel=kernel, stride=stride),
                NasNetSeparable(channels, kernel=kernel, stride=1),
            )
        case "max":
            return nn.MaxPool2d(kernel, stride=stride, padding=padding)
        case "average":
            return nn.AvgPool2d(kernel, stride=stride, padding=padding, count_include_pad=False)
        case "identity":
            return nn.Identity()


class NasNetCell(nn.Module):
    """A normal or a reduction cell."""

    def __init__(
        self, cell: nasnet.Cell, *, current: int, previous: int, filters: int, previous_is_larger: bool
    ) -> None:
        super().__init__()
        self.cell = cell
        self.current = NasNetProjection(current, filters)
        fit_previous = NasNetReduction if previous_is_larger else NasNetProjection
        self.previous = fit_previous(previous, filters)
        self.operations = nn.ModuleList(
            _nasnet_operation(operation, filters, cell.stride) for block in cell.blocks for operation in block
        )

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        states: list[Tensor] = [self.current(current), self.previous(previous)]
        for index, (left, right) in enumerate(self.cell.blocks):
            left_operation, right_operation = self.operations[2 * index], self.operations[2 * index + 1]
            states.append(left_operation(states[left.source]) + right_operation(states[right.source]))
        return torch.cat([states[state] for state in self.cell.concatenated], dim=1)


class NasNet(nn.Module):
    """`benchmarks.networks.nasnet`."""

    def __init__(self, *, cells: int = 6, filters: int = 32, classes: int = 10) -> None:
        super().__init__()
        current = previous = filters * nasnet.STEM_MULTIPLIER
        self.stem = nn.Conv2d(3, current, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(current, eps=nasnet.EPSILON)
        self.cells = nn.ModuleList()
        previous_is_larger = False
        for cell in nasnet.plan(cells):
            filters *= cell.stride
            self.cells.append(
                NasNetCell(
                    cell,
                    current=current,
                    previous=previous,
                    filters=filters,
                    previous_is_larger=previous_is_larger,
                )
            )
            current, previous = filters * len(cell.concatenated), current
            previous_is_larger = cell.stride == 2
        self.fc = nn.Linear(current, classes)

    def forward(self, image: Tensor) -> Tensor:
        x: Tensor = self.bn(self.stem(image))
        previous = x
        for cell in self.cells:
            previous, x = x, cell(x, previous)
        logits: Tensor = self.fc(functional.adaptive_avg_pool2d(functional.relu(x), 1).flatten(1))
        return logits


class AlexNet(nn.Module):
    """`benchmarks.networks.alexnet`."""

    def __init__(
        self,
        *,
        channels: tuple[int, int, int, int, int] = alexnet.CHANNELS,
        hidden: int = 4096,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.features = nn.ModuleList(
            nn.Conv2d(inputs, outputs, window.kernel, stride=window.stride, padding=window.pad)
            for inputs, outputs, window in zip((3, *channels), channels, alexnet.WINDOWS, strict=False)
        )
        self.classifier = nn.ModuleList(
            [
                nn.Linear(channels[-1] * 6 * 6, hidden),
                nn.Linear(hidden, hidden),
                nn.Linear(hidden, classes),
            ]
        )

    def forward(self, image: Tensor) -> Tensor:
        x = image
        for conv, window in zip(self.features, alexnet.WINDOWS, strict=True):
            x = functional.relu(conv(x))
            if window.pooled:
                x = functional.max_pool2d(x, 3, stride=2)
        first, second, last = self.classifier
        logits: Tensor = last(functional.relu(second(functional.relu(first(x.flatten(1))))))
        return logits


class DeepSpeech2(nn.Module):
    """`benchmarks.networks.deepspeech2`."""

    def __init__(self, *, layers: int = 7, hidden: int = 256, classes: int = 29) -> None:
        super().__init__()
        channels = deepspeech2.CHANNELS
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(1, channels, (41, 11), stride=(2, 2), padding=(20, 5), bias=False),
                nn.Conv2d(channels, channels, (21, 11), stride=(2, 1), padding=(10, 5), bias=False),
            ]
        )
        self.bns = nn.ModuleList(nn.BatchNorm2d(channels, eps=deepspeech2.EPSILON) for _ in self.convs)
        frequencies = (deepspeech2.FREQUENCIES + 1) // 2
        self.lstm = nn.LSTM(frequencies * channels, hidden, num_layers=layers)
        self.bn = nn.BatchNorm1d(hidden, eps=deepspeech2.EPSILON)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = spectrogram.permute(0, 3, 1, 2)
        for conv, bn in zip(self.convs, self.bns, strict=True):
            x = bn(functional.relu6(conv(x)))
        x, _ = self.lstm(x.permute(2, 0, 3, 1).flatten(2))
        steps, batch, hidden = x.shape
        logits: Tensor = self.fc(self.bn(x.reshape(steps * batch, hidden)))
        return logits.reshape(steps, batch, -1)


class LstmTc(nn.Module):
    """`benchmarks.networks.lstm_tc`."""

    def __init__(self, *, layers: int = 10, hidden: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(hidden, hidden, num_layers=layers)

    def forward(self, sequence: Tensor) -> Tensor:
        outputs: Tensor
        outputs, _ = self.lstm(sequence)
        return outputs[-1]


class Seq2Seq(nn.Module):
    """`benchmarks.networks.seq2seq`.

    The decoder's layers are cells, whatever `cells` says of the model: called for a single step, cuDNN's layers take
    three times as long for the whole.
    """

    def __init__(
        self,
        *,
        layers: int = 8,
        decoder_steps: int = 30,
        decoder_layers: int = 4,
        hidden: int = 128,
        cells: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = nn.LSTM(hidden, hidden, num_layers=layers)
        self.decoder = nn.ModuleDict({f"l{layer}": nn.LSTMCell(hidden, hidden) for layer in range(decoder_layers)})
        self.decoder_steps = decoder_steps

    def forward(self, sequence: Tensor) -> Tensor:
        cells: Tensor
        _, (_, cells) = self.encoder(sequence)
        x = cells[-1]
        zeros = torch.zeros_like(x)
        states = dict.fromkeys(self.decoder, (zeros, zeros))
        for _ in range(self.decoder_steps):
            for layer, cell in self.decoder.items():
                states[layer] = cell(x, states[layer])
                x, _ = states[layer]
        return x


MODULES: dict[str, Callable[..., nn.Module]] = {
    "resnext": ResNeXt,
    "nasnet": NasNet,
    "alexnet": AlexNet,
    "deepspeech2": DeepSpeech2,
    "lstm_tc": LstmTc,
    "seq2seq": Seq2Seq,
    "llama": Llama,
    "whisper": Whisper,
    "vit": Vit,
    "bert": Bert,
    "convnext": ConvNext,
    "resnet": ResNet,
    "efficientnet": EfficientNet,
    "mobilenet": MobileNet,
}


def _state_dict(model: onnx.ModelProto, known: Collection[str]) -> dict[str, Tensor]:
    """The initialisers as tensors, weights of few bits as floats.

    They carry the names `known` to PyTorch already, but for those of LSTM layers.
    """
    state: dict[str, Tensor] = {}
    scales = {one.name: one for one in model.graph.initializer if one.name.endswith(few_bits.SCALES)}
    for initializer in model.graph.initializer:
        if initializer.name in scales:
            continue
        array = numpy_helper.to_array(initializer)
        if (scale := scales.get(initializer.name + few_bits.SCALES)) is not None:
            array = few_bits.floats(array, numpy_helper.to_array(scale))
        tensor = as_tensor(array.copy())
        path, _, key = initializer.name.rpartition(".")
        prefix, _, layer = path.rpartition(".")
        match key:
            case "W":
                found = {"weight_ih": _to_torch_gates(tensor[0])}
            case "R":
                found = {"weight_hh": _to_torch_gates(tensor[0])}
            case "B":
                of_input, of_recurrence = tensor[0].chunk(2)
                found = {"bias_ih": _to_torch_gates(of_input), "bias_hh": _to_torch_gates(of_recurrence)}
            case _:
                state[initializer.name] = tensor
                continue
        for name, value in found.items():
            cell = f"{prefix}.{layer}.{name}"
            state[cell if cell in known else f"{prefix}.{name}_{layer}"] = value
    return state


def as_tensor(array: Array) -> Tensor:
    """NumPy has no bfloat16 that PyTorch would know."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_torch_gates(rows: Tensor) -> Tensor:
    """Rows in ONNX's gate order (input, output, forget, cell) to PyTorch's (input, forget, cell, output)."""
    input_gate, output_gate, forget_gate, cell_gate = rows.chunk(4)
    return torch.cat([input_gate, forget_gate, cell_gate, output_gate])
