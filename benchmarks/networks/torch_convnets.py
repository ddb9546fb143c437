"""The image networks that people run today as PyTorch modules."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import convnext, efficientnet, mobilenet, resnet
from benchmarks.networks.convolution_layers import EPSILON
from benchmarks.networks.torch_transformers import Mlp


class ConvNorm(nn.Module):
    """`benchmarks.networks.convolution_layers.conv_norm`."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn(self.conv(x))
        return y


def _average(x: Tensor) -> Tensor:
    return functional.adaptive_avg_pool2d(x, 1).flatten(1)


class ResNetBlock(nn.Module):
    """A bottleneck; the shortcut is a convolution where extents or channels change."""

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = resnet.EXPANSION * width
        self.conv1 = ConvNorm(inputs, width)
        self.conv2 = ConvNorm(width, width, kernel=3, stride=stride)
        self.conv3 = ConvNorm(width, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        return functional.relu(self.conv3(y) + self.shortcut(x))


class ResNet(nn.Module):
    """`benchmarks.networks.resnet`."""

    def __init__(self, *, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = ConvNorm(3, width, kernel=7, stride=2)
        self.stages = nn.Sequential()
        inputs = width
        for number, count in enumerate(blocks):
            stage = nn.Sequential()
            for block in range(count):
                stage.append(ResNetBlock(inputs, width << number, stride=2 if number > 0 and block == 0 else 1))
                inputs = resnet.EXPANSION * width << number
            self.stages.append(stage)
        self.head = nn.Linear(inputs, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.stem(image)), 3, stride=2, padding=1)
        logits: Tensor = self.head(_average(self.stages(x)))
        return logits


class MobileNetBlock(nn.Module):
    """An inverted residual block."""

    def __init__(self, inputs: int, stage: mobilenet.Stage, *, stride: int) -> None:
        super().__init__()
        inner = stage.expansion * inputs
        self.expand = ConvNorm(inputs, inner) if stage.expansion > 1 else None
        self.depthwise = ConvNorm(inner, inner, kernel=3, stride=stride, groups=inner)
        self.project = ConvNorm(inner, stage.channels)
        self.residual = stride == 1 and inputs == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else functional.relu6(self.expand(x))
        y = self.project(functional.relu6(self.depthwise(y)))
        return x + y if self.residual else y


class MobileNet(nn.Module):
    """`benchmarks.networks.mobilenet`."""

    def __init__(self, *, stages: int = len(mobilenet.STAGES), last: int = 1280, classes: int = 1000) -> None:
        super().__init__()
        inputs = mobilenet.STEM_CHANNELS
        self.stem = ConvNorm(3, inputs, kernel=3, stride=2)
        self.stages = nn.Sequential()
        for stage in mobilenet.STAGES[:stages]:
            blocks = nn.Sequential()
            for block in range(stage.count):
                blocks.append(MobileNetBlock(inputs, stage, stride=stage.stride if block == 0 else 1))
                inputs = stage.channels
            self.stages.append(blocks)
        self.last = ConvNorm(inputs, last)
        self.head = nn.Linear(last, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.last(self.stages(functional.relu6(self.stem(image))))
        logits: Tensor = self.head(_average(functional.relu6(x)))
        return logits


class Gate(nn.Module):
    """A factor for each channel, from the averages of all."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.silu(self.squeeze(functional.adaptive_avg_pool2d(x, 1)))
        return x * self.excite(y).sigmoid()


class EfficientNetBlock(nn.Module):
    """An inverted residual block with a gate."""

    def __init__(self, inputs: int, stage: efficientnet.Stage, *, stride: int) -> None:
        super().__init__()
        inner = stage.expansion * inputs
        self.expand = ConvNorm(inputs, inner) if stage.expansion > 1 else None
        self.depthwise = ConvNorm(inner, inner, kernel=stage.kernel, stride=stride, groups=inner)
        self.gate = Gate(inner, inputs // efficientnet.SQUEEZE)
        self.project = ConvNorm(inner, stage.channels)
        self.residual = stride == 1 and inputs == stage.channels

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else functional.silu(self.expand(x))
        y = self.project(self.gate(functional.silu(self.depthwise(y))))
        return x + y if self.residual else y


class EfficientNet(nn.Module):
    """`benchmarks.networks.efficientnet`."""

    def __init__(self, *, stages: int = len(efficientnet.STAGES), last: int = 1280, classes: int = 1000) -> None:
        super().__init__()
        inputs = efficientnet.STEM_CHANNELS
        self.stem = ConvNorm(3, inputs, kernel=3, stride=2)
        self.stages = nn.Sequential()
        for stage in efficientnet.STAGES[:stages]:
            blocks = nn.Sequential()
            for block in range(stage.count):
                blocks.append(EfficientNetBlock(inputs, stage, stride=stage.stride if block == 0 else 1))
                inputs = stage.channels
            self.stages.append(blocks)
        self.last = ConvNorm(inputs, last)
        self.head = nn.Linear(last, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.last(self.stages(functional.silu(self.stem(image))))
        logits: Tensor = self.head(_average(functional.silu(x)))
        return logits


class PixelNorm(nn.LayerNorm):
    """Normalisation over the channels of each pixel of (batch, channels, height, width)."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=convnext.EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A depthwise convolution, then an MLP over channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=convnext.EPSILON)
        self.mlp = Mlp(channels)
        self.scale = nn.Parameter(nn.init.zeros_(self.depthwise.weight.new_empty(channels, 1, 1)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        z: Tensor = x + self.scale * y.permute(0, 3, 1, 2)
        return z


class NormAndWindows(nn.ModuleDict):
    """What has a normalisation `norm` and a convolution `conv` of windows side by side."""

    def __init__(self, inputs: int, outputs: int, size: int, normalised: int) -> None:
        super().__init__({"norm": PixelNorm(normalised), "conv": nn.Conv2d(inputs, outputs, size, stride=size)})


class ConvNext(nn.Module):
    """`benchmarks.networks.convnext`."""

    def __init__(self, *, blocks: tuple[int, ...] = (3, 3, 9, 3), width: int = 96, classes: int = 1000) -> None:
        super().__init__()
        self.stem = NormAndWindows(3, width, 4, width)
        self.shrink = nn.ModuleDict(
            {
                str(stage): NormAndWindows(width << (stage - 1), width << stage, 2, width << (stage - 1))
                for stage in range(1, len(blocks))
            }
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*(ConvNextBlock(width << stage) for _ in range(count))) for stage, count in enumerate(blocks)
        )
        channels = width << (len(blocks) - 1)
        self.norm = PixelNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem["norm"](self.stem["conv"](image))
        for number, stage in enumerate(self.stages):
            if number > 0:
                shrink = self.shrink[str(number)]
                x = shrink["conv"](shrink["norm"](x))
            x = stage(x)
        pooled = self.norm(functional.adaptive_avg_pool2d(x, 1)).flatten(1)
        logits: Tensor = self.head(pooled)
        return logits
