"""Long work on models: without the garbage collector, and with Rammer's own error where memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from rammer.errors import OutOfMemoryError


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Compile or load a model.

    Both make very many objects and hardly a cycle among them; the collector would walk them all again and again.

    Args:
        doing: what the model is being, for the error: "compiled".

    Raises:
        OutOfMemoryError: memory ran out after all: others use it, too.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except MemoryError as error:
        raise OutOfMemoryError(
            f"memory ran out as the model was {doing}: {str(error) or 'no more is given'}"
        ) from error
    finally:
        if was_enabled:
            gc.enable()
