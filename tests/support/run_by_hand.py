"""A report and a run of it that one can follow by hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_CANDIDATE: Mapping[str, Any] = {
    "skeleton": "map",
    "task": [4, 8],
    "details": "1 vector",
    "tasks": 2,
    "predicted_us": 0.9,
    "measured_us": None,
    "scheduled_us": 1.0,
    "bound": "memory",
}

REPORT: dict[str, Any] = {
    "name": "by hand",
    "policy": "wavefront",
    "device": {
        "name": "a machine",
        "veus": 2,
        "handover_us": {"value": 0.5},
        "task_overhead_us": {"value": 0.0},
        "starts_early": False,
    },
    "memory": {
        "arena_bytes": 128,
        "tensors": [{"bytes": 100, "operators": [0, 1]}, {"bytes": 7, "operators": [1]}, {"bytes": 9, "operators": []}],
    },
    "predicted": {"total_us": 7.5, "starts_us": [[[0.0, 1.0], [2.5]], [[], [6.0]]]},
    "edges": [[0, 1, True, True]],
    "operators": [
        {
            "name": "first",
            "kind": "Conv",
            "sources": [["Conv", "node0"], ["Relu", "node1"]],
            "chosen": 0,
            "reason": "the only candidate",
            "candidates": [_CANDIDATE],
        },
        {
            "name": "second",
            "kind": "Add",
            "sources": [],
            "chosen": 1,
            "reason": "fastest",
            "candidates": [_CANDIDATE, {**_CANDIDATE, "task": [], "measured_us": 1.4, "scheduled_us": 1.5}],
        },
    ],
    "programs": [
        [
            [["execute", 0, 0], ["signal", 5], ["execute", 0, 1], ["signal", 5]],
            [["wait", 5, 2], ["execute", 1, 0]],
        ],
        [[], [["execute", 1, 1]]],
    ],
}
"""Two rPrograms on two vEUs; the second vEU waits for two rTasks of `first`."""

SPANS_NS = (
    (np.array([[0, 1000], [1000, 1010], [1010, 3000], [3000, 3010]]), np.array([[100, 3100], [3100, 4000]])),
    (np.zeros((0, 2), np.int64), np.array([[5000, 9000]])),
)
"""A measured run of it."""
