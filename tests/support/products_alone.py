"""Plans whose products stay as they are, whatever tiles a test has chosen for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from rammer.passes import fuse_windows, split_reduction


@contextmanager
def products_alone() -> Iterator[None]:
    """Inside, no sum is cut into parts, and no product computes what it multiplies.

    Both are decided by Roller's model, and the tiles that tests choose are slow.
    """
    nothing_gained = mock.patch.object(split_reduction, "predicted_us", return_value=0.0)
    nothing_computed = mock.patch.object(fuse_windows, "MAX_WINDOW_POINTS", -1)
    with nothing_gained, nothing_computed:
        yield
