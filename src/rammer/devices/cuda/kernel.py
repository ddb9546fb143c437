"""The persistent kernel of a model, loaded into a GPU: whether it fits is asked before the first launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rammer.devices.base import Buffer
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.streaming import Launch, streaming_launch, streams
from rammer.errors import DeviceUnavailableError

_ENTRY = b"rammer_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Code that is ready to run on so many blocks."""

    blocks: int
    launch: Launch


class LoadedCode:
    """Machine code on the GPU, for all programs of a model that have the same; it stays as long as one has it."""

    def __init__(self, driver: Driver, code: Buffer, launch: Mapping[str, Any]) -> None:
        """Load it, for launches as `load_kernel` takes them.

        Raises:
            DeviceUnavailableError: the GPU cannot run it.
        """
        self._code, self._launch = code, launch
        self._memory = Memory(driver)
        self.kernel = load_kernel(driver, self._memory, bytes(code), **launch)

    def is_that_of(self, code: Buffer, launch: Mapping[str, Any]) -> bool:
        """Whether it is the same code, for the same launches."""
        return launch == self._launch and code == self._code


def load_kernel(
    driver: Driver,
    memory: Memory,
    code: bytes,
    *,
    architecture: str,
    blocks: int,
    threads: int,
    scratch_bytes: int,
    constants: tuple[int, int] = (0, 0),
) -> Kernel:
    """The persistent kernel of machine code, if all its blocks can be resident together.

    Args:
        driver: the driver, entered.
        memory: what unloads the code together with the model.
        code: machine code.
        architecture: what it was compiled for.
        blocks: of a launch.
        threads: of a block.
        scratch_bytes: shared memory of a block, beyond what the code names.
        constants: where they begin, and their bytes; code alone has none.

    Raises:
        DeviceUnavailableError: the GPU cannot run it.
    """
    api = driver.api
    status, module = api.cuModuleLoadData(code)
    if status != api.CUresult.CUDA_SUCCESS:
        raise DeviceUnavailableError(
            f"machine code for {architecture} does not load on this GPU: {status.name}",
            hint="compile the model again here; if that does not help, update NVIDIA's driver",
        )
    memory.own("cuModuleUnload", module)
    function = driver.call("cuModuleGetFunction", module, _ENTRY)
    limit = driver.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    static = driver.call("cuFuncGetAttribute", api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
    if static + scratch_bytes > limit:
        raise DeviceUnavailableError(
            f"the model takes {static + scratch_bytes} bytes of shared memory for a block, this GPU has {limit}",
            hint="compile for this GPU's architecture",
        )
    wanted = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.call("cuFuncSetAttribute", function, wanted, scratch_bytes)
    resident = driver.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, scratch_bytes)
    held = resident * driver.attribute("MULTIPROCESSOR_COUNT")
    if held < blocks:
        raise DeviceUnavailableError(
            f"the model has {blocks} vEUs, this GPU holds {held} of its blocks at a time",
            hint=f"compile the model again here, or with veus={held}",
        )
    address, size_bytes = constants
    launch: Launch
    if blocks == 0:
        launch = _nothing
    elif streams(driver, size_bytes):
        launch = streaming_launch(
            driver,
            function,
            blocks=blocks,
            threads=threads,
            scratch_bytes=scratch_bytes,
            address=address,
            size_bytes=size_bytes,
        )
    else:
        launch = partial(api.cuLaunchCooperativeKernel, function, *(blocks, 1, 1), *(threads, 1, 1), scratch_bytes)
    return Kernel(blocks=blocks, launch=launch)


def _nothing(stream: int, parameters: int) -> tuple[int]:
    """The launch of a program without work."""
    return (0,)
