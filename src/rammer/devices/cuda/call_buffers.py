"""Where the NumPy arrays of one call lie on their way to the GPU and back, with a stream of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Self

from rammer.devices.cuda.driver import Driver, check
from rammer.devices.cuda.memory import Memory, Staging


class CallBuffers:
    """Inputs and outputs of one run at a time; whoever holds `lock` uses them, until a `with` block ends.

    Attributes:
        lock: held from before inputs are sent until outputs are read.
        stream: copies and the run are given to it.
        inputs: of the run.
        outputs: of the run.
        addresses: where both lie for the kernel.
    """

    def __init__(
        self,
        driver: Driver,
        memory: Memory,
        input_bytes: Sequence[int],
        output_bytes: Sequence[int],
        *,
        far_outputs: bool,
    ) -> None:
        """Allocate what it takes.

        Args:
            driver: of the GPU.
            memory: owns it.
            input_bytes: sizes of the inputs.
            output_bytes: sizes of the outputs.
            far_outputs: whether the kernel writes outputs into the host's memory.
        """
        self.lock = threading.Lock()
        flags = int(driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.stream = memory.own("cuStreamDestroy", int(driver.call("cuStreamCreate", flags)))
        self.inputs = Staging(driver, memory, input_bytes, self.stream)
        self.outputs = Staging(driver, memory, output_bytes, self.stream, on_host=far_outputs)
        self.addresses = self.inputs.addresses + self.outputs.addresses
        self._api = driver.api
        self._synchronize = partial(driver.api.cuStreamSynchronize, self.stream)

    def __enter__(self) -> Self:
        """The buffers, whose lock is held."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let others use them."""
        self.lock.release()

    def wait(self) -> None:
        """Stand still until all that the stream was given is done."""
        answer = self._synchronize()
        if answer[0]:  # not left to `check`: this stands in the way of every call
            check(self._api, "cuStreamSynchronize", answer)
