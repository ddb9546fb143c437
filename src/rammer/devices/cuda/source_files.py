"""The files of a source for a GPU beside those that all devices have, and whether they fit together.

Apart from what writes them, which takes long to import: loading a model needs none of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.devices.base import Source
from rammer.devices.cuda.tables import TENSOR_MAP, record_dtype
from rammer.ir.schema import Schema, SchemaError, read_json

ABI = 10
CODE = "program.cu"
CALLED = 'extern "C" __attribute__((used)) __device__ __noinline__'
"""What a function is that the dispatch calls."""
LAUNCH = "launch.json"
DEVICE_RECORDS = "device_records.bin"
TENSOR_MAPS = "tensor_maps.bin"
_LAUNCH: Schema = {
    "threads": int,
    "scratch_bytes": int,
    "slots": int,
    "starts": [int],
    "input_bytes": [int],
    "output_bytes": [int],
    "states": int,
    "far_outputs": bool,
}


def check_launch(source: Source, array_bytes: Sequence[int]) -> None:
    """See whether what a launch needs to know is there, and fits the records and arrays of these sizes.

    Raises:
        SchemaError: it is not, or does not.
    """
    launch = read_json(source.files[LAUNCH], _LAUNCH, "its launch")
    if launch["input_bytes"] + launch["output_bytes"] != list(array_bytes):
        raise SchemaError("its launch is for other arrays than its signature says")
    if launch["states"] > min(len(launch["input_bytes"]), len(launch["output_bytes"])):
        raise SchemaError("its launch is for more states than it has arrays")
    starts = launch["starts"]
    record_bytes = record_dtype(0).itemsize + launch["slots"] * np.dtype(np.uint64).itemsize
    if starts != sorted(starts) or len(source.files[DEVICE_RECORDS]) != max(starts, default=0) * record_bytes:
        raise SchemaError("its launch is for other records")
    if len(source.files[TENSOR_MAPS]) % TENSOR_MAP.itemsize:
        raise SchemaError(f"its {TENSOR_MAPS} ends early")
    if not source.files[CODE]:
        raise SchemaError(f"its {CODE} is empty")
