"""Models in int8 by ONNX Runtime's quantiser."""

from pathlib import Path

import onnx
from onnxruntime import quantization

from tests.support.model_maker import Array


class _Samples(quantization.CalibrationDataReader):
    def __init__(self, inputs: dict[str, Array]) -> None:
        self._left = [inputs] * 2

    def get_next(self) -> dict[str, Array] | None:
        return self._left.pop() if self._left else None


def prepared(model: onnx.ModelProto, folder: Path) -> Path:
    """The model with its shapes, as the quantiser wants it."""
    plain, made = folder / "plain.onnx", folder / "prepared.onnx"
    onnx.save(model, plain)
    quantization.shape_inference.quant_pre_process(str(plain), str(made), skip_symbolic_shape=True)
    return made


def quantised_statically(
    model: onnx.ModelProto, inputs: dict[str, Array], folder: Path, form: str = "QDQ"
) -> onnx.ModelProto:
    """Activations of uint8, weights of int8 by channels, ranges by one input; `form` is "QDQ" or "QOperator"."""
    made = folder / "static.onnx"
    quantization.quantize_static(
        str(prepared(model, folder)),
        str(made),
        _Samples(inputs),
        quant_format=quantization.QuantFormat[form],
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return onnx.load(made)


def quantised_dynamically(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Weights of int8, activations by their range as the model runs."""
    made = folder / "dynamic.onnx"
    quantization.quantize_dynamic(str(prepared(model, folder)), str(made), weight_type=quantization.QuantType.QInt8)
    return onnx.load(made)
