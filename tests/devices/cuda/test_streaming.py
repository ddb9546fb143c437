"""Launches whose constants make room in L2: for which models, and what the driver is asked for."""

import pytest

from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.streaming import streaming_launch, streams
from tests.support.cuda_driver import Api, Status

bindings = pytest.importorskip("cuda.bindings.driver", reason="needs the cuda extra")

L2_BYTES, WINDOW_BYTES = 60 << 20, 128 << 20


class LaunchApi(Api):
    """A driver that remembers what it is to launch."""

    def __init__(self):
        limits = {"L2_CACHE_SIZE": L2_BYTES, "MAX_ACCESS_POLICY_WINDOW_SIZE": WINDOW_BYTES}
        super().__init__(
            cuDeviceGetAttribute=lambda name, _: (Status.CUDA_SUCCESS, limits[name]),
            cuLaunchKernelEx=self._launch,
        )
        names = (
            "CUlaunchAttribute",
            "CUlaunchAttributeID",
            "CUaccessPolicyWindow",
            "CUaccessProperty",
            "CUlaunchConfig",
        )
        for name in (*names, "CUstream"):
            setattr(self, name, getattr(bindings, name))
        self.launches = []

    def _launch(self, *arguments):
        self.launches.append(arguments)
        return (Status.CUDA_SUCCESS,)


@pytest.fixture
def driver():
    return Driver(api=LaunchApi(), device=0, context=0, pool=0)


@pytest.mark.parametrize(
    ("size_bytes", "wanted"),
    [(0, False), (L2_BYTES // 2, False), (L2_BYTES // 2 + 1, True), (WINDOW_BYTES, True), (WINDOW_BYTES + 1, False)],
)
def test_constants_that_half_of_l2_does_not_hold_are_streaming(driver, size_bytes, wanted):
    assert streams(driver, size_bytes) is wanted


def test_a_launch(driver):
    sizes = {"blocks": 132, "threads": 512, "scratch_bytes": 1000, "address": 4096, "size_bytes": 50 << 20}
    launch = streaming_launch(driver, "function", **sizes)
    for stream in (5, 7, 5):
        assert launch(stream, 64) == (Status.CUDA_SUCCESS,)
    configs = [config for config, *_ in driver.api.launches]
    assert [rest for _, *rest in driver.api.launches] == [["function", 64, 0]] * 3
    assert [int(config.hStream) for config in configs] == [5, 7, 5]
    assert configs[0] is configs[2]
    for config in configs:
        assert (config.gridDimX, config.blockDimX, config.sharedMemBytes, config.numAttrs) == (132, 512, 1000, 2)
        policy, together = config.attrs
        window = policy.value.accessPolicyWindow
        assert (int(window.base_ptr), window.num_bytes, window.hitRatio) == (4096, 50 << 20, 1.0)
        assert window.hitProp == window.missProp == bindings.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
        assert together.id == bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        assert together.value.cooperative == 1
