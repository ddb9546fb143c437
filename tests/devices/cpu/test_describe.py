"""The processor as data: from a made-up machine, and from the one at hand."""

import pytest

from rammer.devices.cpu.describe import MAX_VEUS, describe
from rammer.devices.cpu.machine import read_machine
from rammer.errors import OptionError
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts


def write(root, files):
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n")


@pytest.fixture
def server(tmp_path):
    """Two physical cores with two hardware threads each: 0 and 2, 1 and 3."""
    flags = "fpu sse2 avx2 fma avx512f avx512vl avx512bw avx512dq hypervisor arat"
    entry = f"processor\t: 0\nmodel name\t: Made Up CPU @ 2.50GHz\nflags\t\t: {flags}\n\n"
    files = {"proc/cpuinfo": entry * 4, "proc/self/cgroup": "0::/service"}
    for thread in range(4):
        cpu = f"sys/devices/system/cpu/cpu{thread}"
        files[f"{cpu}/topology/thread_siblings_list"] = f"{thread % 2},{thread % 2 + 2}"
        caches = [("1", "Data", "48K", 2), ("1", "Instruction", "32K", 2), ("2", "Unified", "2048K", 2)]
        caches.append(("3", "Unified", "32768K", 4))
        for i, (level, kind, size, sharers) in enumerate(caches):
            shared = "0-3" if sharers == 4 else f"{thread % 2},{thread % 2 + 2}"
            found = {"level": level, "type": kind, "size": size, "coherency_line_size": "64", "shared_cpu_list": shared}
            files |= {f"{cpu}/cache/index{i}/{name}": value for name, value in found.items()}
    write(tmp_path, files)
    return tmp_path


def test_machine_is_read(server):
    machine = read_machine(server, range(4))
    assert machine.name == "Made Up CPU @ 2.50GHz"
    assert machine.cores == (0, 1, 2, 3)
    assert machine.physical_cores == machine.usable_cores == 2
    assert machine.clock_ghz == 2.5
    assert machine.features == ("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "fma", "sse2")
    assert [(cache.level, cache.capacity_bytes, cache.sharers) for cache in machine.caches] == [
        (1, 48 << 10, 2),
        (2, 2 << 20, 2),
        (3, 32 << 20, 4),
    ]


def test_arm_machine_is_read(tmp_path, monkeypatch):
    """Two clusters of one core each, as Linux shows them in a virtual machine: no clock, no sizes of caches."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    entry = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd atomics asimddp\n"
    entry += (
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
    )
    files = {"proc/cpuinfo": entry * 2}
    for thread in range(2):
        cpu = f"sys/devices/system/cpu/cpu{thread}"
        files |= {f"{cpu}/topology/core_id": "0", f"{cpu}/topology/physical_package_id": "0"}
        files |= {f"{cpu}/topology/thread_siblings_list": str(thread), f"{cpu}/cache/index0/level": "1"}
    write(tmp_path, files)
    machine = read_machine(tmp_path, range(2))
    assert machine.name == "aarch64, implementer 0x41, part 0xd0c"
    assert machine.features == ("asimd", "asimddp", "atomics", "fp")
    assert (machine.physical_cores, machine.clock_ghz, machine.caches) == (2, None, ())
    vdevice = describe(machine, None)
    assert (vdevice.vector_bytes, vdevice.vector_registers) == (16, 32)
    assert vdevice.flops_per_us[DType.FLOAT32].value == pytest.approx(48e3)  # two 4-lane multiply-adds at 3 GHz


def test_siblings_come_last(server):
    assert read_machine(server, [3, 2, 1]).cores == (1, 2, 3)
    assert read_machine(server, [0, 2]).physical_cores == 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"sys/fs/cgroup/service/cpu.max": "max 100000"}, 2),
        ({"sys/fs/cgroup/service/cpu.max": "150000 100000"}, 1),
        ({"sys/fs/cgroup/service/cpu.max": "50000 100000"}, 1),
        ({"sys/fs/cgroup/service/cpu.max": "400000 100000", "sys/fs/cgroup/cpu.max": "100000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/box\n2:memory:/",
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "100000",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2,
        ),
    ],
)
def test_quota_of_the_control_group(server, files, cores):
    write(server, files)
    assert read_machine(server, range(4)).usable_cores == cores


def test_description(server):
    vdevice = describe(read_machine(server, range(4)), None)
    assert vdevice.kind == "cpu"
    assert [veu.core for veu in vdevice.veus] == [0, 1]
    assert (vdevice.vector_bytes, vdevice.vector_registers) == (64, 32)
    assert [level.name for level in vdevice.levels] == ["L1", "L2", "L3", "memory"]
    assert [level.shared for level in vdevice.levels] == [False, False, True, True]
    assert vdevice.own_cache_bytes == 2 << 20
    # Two 16-lane multiply-adds a cycle at 2.5 GHz.
    assert vdevice.flops_per_us[DType.FLOAT32].value == pytest.approx(160e3)
    assert vdevice.flops_per_us[DType.FLOAT64].value == pytest.approx(80e3)
    assert "2.5 GHz" in vdevice.flops_per_us[DType.FLOAT32].provenance
    assert all(figure.provenance for figure in vdevice.flops_per_us.values())


@pytest.mark.parametrize(
    ("flags", "found"),
    [("avx512_vnni", ByteProducts.QUADS), ("avx_vnni", None), ("", None)],
)
def test_products_of_bytes_need_an_instruction_on_whole_vectors(server, flags, found):
    info = server / "proc/cpuinfo"
    info.write_text(info.read_text().replace("hypervisor", f"hypervisor {flags}"))
    vdevice = describe(read_machine(server, range(4)), None)
    assert vdevice.byte_products is found
    assert vdevice.flops_per_us[DType.INT8].value == 4 * vdevice.flops_per_us[DType.FLOAT32].value


def test_more_veus_than_cores_share_them(server):
    vdevice = describe(read_machine(server, range(4)), 6)
    assert [veu.core for veu in vdevice.veus] == [0, 1, 2, 3, 0, 1]


def test_too_many_veus(server):
    with pytest.raises(OptionError, match="1024"):
        describe(read_machine(server, range(4)), MAX_VEUS + 1)


@pytest.mark.parametrize(
    ("entry", "vectors"),
    [
        ("flags: sse2 avx2 fma", (32, 16)),
        ("flags: sse2 avx2 fma avx512f", (32, 16)),
        ("flags: sse2", (16, 16)),
        ("Features: fp asimd sve", (16, 32)),
    ],
)
def test_vector_registers(tmp_path, monkeypatch, entry, vectors):
    monkeypatch.setattr("platform.machine", lambda: "some")
    write(tmp_path, {"proc/cpuinfo": f"processor: 0\n{entry}\n"})
    vdevice = describe(read_machine(tmp_path, [0]), None)
    assert (vdevice.vector_bytes, vdevice.vector_registers) == vectors


def test_system_that_says_nothing(tmp_path):
    machine = read_machine(tmp_path, [0, 1])
    assert (machine.physical_cores, machine.quota_cores, machine.clock_ghz, machine.caches) == (2, None, None, ())
    vdevice = describe(machine, None)
    assert [level.name for level in vdevice.levels] == ["L1", "L2", "memory"]
    assert "assumed" in vdevice.flops_per_us[DType.FLOAT32].provenance


def test_this_machine_reads_the_same_each_time():
    assert describe(read_machine(), None) == describe(read_machine(), None)
    assert describe(read_machine(), 3).veu_count == 3
