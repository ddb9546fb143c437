"""The ways to make a second model of a compiled one."""

import copy
import pickle

COPIES = {
    "clone": lambda net: net.clone(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),  # noqa: S301 - its own
}
