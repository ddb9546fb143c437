"""Signatures of the operators of `com.microsoft` that are read: the `onnx` package has no schemas of that domain.

Inputs are listed in order, optional ones with a question mark. Of attributes, defaults are given, or the type of those
that have none.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx.defs import OpSchema

DOMAIN = "com.microsoft"

_INT = OpSchema.AttrType.INT
_FLOAT = OpSchema.AttrType.FLOAT
_INTS = OpSchema.AttrType.INTS

_Default = int | float | str | OpSchema.AttrType

_HEADS: Mapping[str, _Default] = {
    "num_heads": _INT,
    "mask_filter_value": -10000.0,
    "scale": _FLOAT,
    "unidirectional": 0,
}
_WINDOW: Mapping[str, _Default] = {
    "auto_pad": "NOTSET",
    "dilations": _INTS,
    "kernel_shape": _INTS,
    "pads": _INTS,
    "strides": _INTS,
}
_CONVOLUTION: Mapping[str, _Default] = {**_WINDOW, "group": 1}
_ACTIVATED: Mapping[str, _Default] = {
    "activation": OpSchema.AttrType.STRING,
    "activation_params": OpSchema.AttrType.FLOATS,
}
_GROUPED = (
    "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? position_ids? "
    "attention_bias? head_sink?"
)
_EMBEDDED = (
    "input_ids segment_ids? word position segment? gamma beta mask? word_scale position_scale segment_scale? "
    "gamma_scale beta_scale word_zero_point position_zero_point segment_zero_point? gamma_zero_point beta_zero_point"
)
_QUANTISED_PAIR = "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?"
_QUANTISED = "X X_scale X_zero_point? Y_scale Y_zero_point?"

_SIGNATURES: Mapping[str, tuple[str, Mapping[str, _Default]]] = {
    "Attention": (
        "input weights bias? mask_index? past? attention_bias? past_sequence_length?",
        {**_HEADS, "do_rotary": 0, "past_present_share_buffer": 0, "qkv_hidden_sizes": _INTS},
    ),
    "BiasGelu": ("A B", {}),
    "DequantizeLinear": ("x x_scale x_zero_point?", {"axis": 1, "block_size": 0}),
    "DynamicQuantizeMatMul": ("A B b_scale b_zero_point? bias?", {}),
    "DynamicQuantizeLSTM": (
        "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point",
        {
            "activation_alpha": OpSchema.AttrType.FLOATS,
            "activation_beta": OpSchema.AttrType.FLOATS,
            "activations": OpSchema.AttrType.STRINGS,
            "clip": _FLOAT,
            "direction": "forward",
            "hidden_size": _INT,
            "input_forget": 0,
        },
    ),
    "EmbedLayerNormalization": (
        "input_ids segment_ids? word position segment? gamma beta mask? position_ids?",
        {"epsilon": 1e-12, "mask_index_type": 0},
    ),
    "FastGelu": ("X bias?", {}),
    "FusedMatMul": ("A B", {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0}),
    "FusedConv": ("X W B? Z?", {**_CONVOLUTION, **_ACTIVATED}),
    "FusedGemm": (
        "A B C?",
        {
            "alpha": 1.0,
            "beta": 1.0,
            "transA": 0,
            "transB": 0,
            "activation": OpSchema.AttrType.STRING,
            "activation_alpha": _FLOAT,
            "activation_beta": _FLOAT,
            "activation_gamma": _FLOAT,
        },
    ),
    "Gelu": ("X", {}),
    "GroupQueryAttention": (
        _GROUPED,
        {
            "num_heads": _INT,
            "kv_num_heads": _INT,
            "scale": _FLOAT,
            "do_rotary": 0,
            "rotary_interleaved": 0,
            "local_window_size": -1,
            "softcap": 0.0,
            "smooth_softmax": -1,
        },
    ),
    "MatMulIntegerToFloat": ("A B a_scale b_scale a_zero_point? b_zero_point? bias?", {}),
    "MatMulNBits": (
        "A B scales zero_points? g_idx? bias?",
        {"K": _INT, "N": _INT, "bits": 4, "block_size": _INT, "accuracy_level": 0},
    ),
    "MultiHeadAttention": (
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length?",
        _HEADS,
    ),
    "NhwcConv": ("X W B?", _CONVOLUTION),
    "NhwcFusedConv": ("X W B? Z?", {**_CONVOLUTION, **_ACTIVATED}),
    "NhwcMaxPool": ("x", {**_WINDOW, "ceil_mode": 0}),
    "QAttention": (
        "input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?",
        {**_HEADS, "do_rotary": 0, "past_present_share_buffer": 0},
    ),
    "QEmbedLayerNormalization": (
        _EMBEDDED,
        {"epsilon": 1e-12},
    ),
    "QGemm": (
        "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?",
        {"alpha": 1.0, "transA": 0, "transB": 0},
    ),
    "QLinearAdd": (_QUANTISED_PAIR, {}),
    "QLinearAveragePool": (_QUANTISED, {**_WINDOW, "ceil_mode": 0, "channels_last": 0, "count_include_pad": 0}),
    "QLinearConcat": ("Y_scale Y_zero_point inputs*", {"axis": _INT}),
    "QLinearConv": (
        "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?",
        {**_CONVOLUTION, "channels_last": 0},
    ),
    "QLinearGlobalAveragePool": ("X X_scale X_zero_point Y_scale Y_zero_point", {"channels_last": 0}),
    "QLinearLeakyRelu": (_QUANTISED, {"alpha": 0.01}),
    "QLinearMul": (_QUANTISED_PAIR, {}),
    "QLinearSigmoid": (_QUANTISED, {}),
    "QLinearSoftmax": (_QUANTISED, {"axis": -1, "opset": _INT}),
    "QLinearWhere": ("condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point", {}),
    "QuantizeLinear": ("x y_scale y_zero_point?", {"axis": 1, "block_size": 0, "saturate": 1}),
    "QuickGelu": ("X", {"alpha": 1.702}),
    "RotaryEmbedding": (
        "input position_ids cos_cache sin_cache",
        {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0, "scale": 1.0, "is_packed_batching": 0},
    ),
    "SimplifiedLayerNormalization": ("X scale", {"axis": -1, "epsilon": 1e-5, "stash_type": 1}),
    "SkipLayerNormalization": ("input skip gamma beta? bias?", {"epsilon": 1e-12}),
    "SkipSimplifiedLayerNormalization": ("input skip gamma bias?", {"epsilon": 1e-12}),
    "TransposeMatMul": ("A B", {"alpha": 1.0, "transA": 0, "transB": 0}),
}


def schema(op_type: str) -> OpSchema:
    """The schema of an operator: inputs of any element type, which converters check where it matters.

    Raises:
        KeyError: it is not read.
    """
    inputs, attributes = _SIGNATURES[op_type]
    option = OpSchema.FormalParameterOption
    options = {"?": option.Optional, "*": option.Variadic}
    types = sorted(onnx.defs.get_schema("Cast").inputs[0].types)
    return OpSchema(
        op_type,
        DOMAIN,
        1,
        inputs=[
            OpSchema.FormalParameter(
                name.rstrip("?*"),
                f"T{i}",
                param_option=options.get(name[-1], option.Single),
                is_homogeneous=not name.endswith("*"),
            )
            for i, name in enumerate(inputs.split())
        ],
        type_constraints=[(f"T{i}", types, "") for i in range(len(inputs.split()))],
        attributes=[_attribute(name, default) for name, default in attributes.items()],
    )


def _attribute(name: str, default: _Default) -> OpSchema.Attribute:
    if isinstance(default, OpSchema.AttrType):
        return OpSchema.Attribute(name, default, required=False)
    return OpSchema.Attribute(name, onnx.helper.make_attribute(name, default))
