# SPDX-License-Identifier: BSD-3-Clause
"""The stand-in is the device that it claims to be, and has no more memory than that."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tidegauge import standin
from tidegauge.allocator import Assumptions

Script = Callable[..., str]
REPO = Path(__file__).parent.parent.parent


def test_device_is_that_of_the_settings(run: Script) -> None:
    run("""
        properties = torch.cuda.get_device_properties(1)
        assert torch.cuda.device_count() == 2
        assert (properties.name, properties.total_memory) == ("stand-in", 16 << 30)
        assert (properties.major, properties.minor) == (9, 0)
        assert properties.multi_processor_count == 132
        assert properties.max_threads_per_multi_processor == 2048
        assert properties.shared_memory_per_block_optin == 227 << 10
        assert torch.cuda.is_bf16_supported()
    """)


def test_devices_access_each_others_memory(run: Script) -> None:
    run("""
        assert torch.cuda.can_device_access_peer(0, 1)
        sent = torch.arange(8.0).cuda()
        received = sent.to("cuda:1")
        assert received.device.index == 1
        assert torch.equal(received.cpu(), torch.arange(8.0))
    """)


def test_devices_that_the_program_hides_are_not_there(run: Script) -> None:
    run("assert torch.cuda.device_count() == 1", CUDA_VISIBLE_DEVICES="1")


def test_layouts_are_those_of_the_headers_beside_torch(tmp_path: Path) -> None:
    found = standin.find_torch()
    header = next(found.folder.parent.glob("nvidia/*/include/driver_types.h"), None)
    if header is None:
        pytest.skip("NVIDIA's headers are not installed")
    struct = re.search(r"struct \w+ cudaDeviceProp\s*\{.*?^\};", header.read_text(), re.S | re.M)
    assert struct is not None
    theirs = re.sub(r"struct \w+ cudaDeviceProp", "struct cudaDeviceProp", struct[0])
    members = {
        "total_memory_bytes": "totalGlobalMem",
        "constant_bytes": "totalConstMem",
        "major": "major",
        "can_map_host_memory": "canMapHostMemory",
        "surface_alignment": "surfaceAlignment",
        "pci_bus": "pciBusID",
        "l2_bytes": "l2CacheSize",
        "threads_per_multiprocessor": "maxThreadsPerMultiProcessor",
        "shared_bytes_per_multiprocessor": "sharedMemPerMultiprocessor",
        "registers_per_multiprocessor": "regsPerMultiprocessor",
        "shared_bytes_per_block_optin": "sharedMemPerBlockOptin",
        "blocks_per_multiprocessor": "maxBlocksPerMultiProcessor",
        "reserved_shared_bytes_per_block": "reservedSharedMemPerBlock",
    }
    source = tmp_path / "layouts.cpp"
    is_cuda_12 = "true" if found.cuda.startswith("12") else "false"
    source.write_text(
        '#include "standin/runtime/cuda_types.h"\nstruct cudaUUID_t { char bytes[16]; };\n'
        + theirs
        + f"\nusing Ours = tidegauge::standin::DeviceProperties<{is_cuda_12}>;\n"
        + "".join(
            f"static_assert(offsetof(Ours, {ours}) == offsetof(cudaDeviceProp, {name}));\n"
            for ours, name in members.items()
        )
        + "static_assert(offsetof(Ours, reserved) <= sizeof(cudaDeviceProp));\n"
    )
    subprocess.run(
        [standin.find_compiler(), "-std=c++20", "-fsyntax-only", f"-I{REPO / 'src'}", source],
        check=True,
    )


def test_process_that_needs_more_than_the_device_has_runs_out_of_memory(run: Script) -> None:
    text = run("""
        kept = torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
        other = torch.empty(15 << 30, dtype=torch.uint8, device="cuda:1")
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print(error)
        del kept
        torch.empty(15 << 30, dtype=torch.uint8, device="cuda")
    """)
    assert "CUDA out of memory. Tried to allocate 2.00 GiB" in text
    assert "GPU 0 has a total capacity of 16.00 GiB of which 1024.00 MiB is free" in text


def test_context_takes_memory_of_devices_that_are_used(run: Script) -> None:
    run(
        """
        free, total = torch.cuda.mem_get_info()
        assert (total, total - free) == (16 << 30, 500 * MIB)
        """,
        assumptions=Assumptions(context_bytes=500 << 20),
    )


def test_expandable_segments_are_limited_too(run: Script) -> None:
    run(
        """
        kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(15)]
        assert torch.cuda.memory_reserved() == 15 << 30
        assert len({each["address"] for each in torch.cuda.memory_snapshot()}) == 1
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
            raise AssertionError("fits")
        except torch.OutOfMemoryError:
            pass
        kept.clear()
        torch.cuda.empty_cache()
        assert torch.cuda.mem_get_info()[0] == 16 << 30
        """,
        PYTORCH_ALLOC_CONF="expandable_segments:True",
    )


def test_headers_are_not_needed() -> None:
    from tidegauge.standin import _signatures

    source = _signatures.write_source({"cusolverDnSgeqrf_bufferSize"}, {})
    assert "int cusolverDnSgeqrf_bufferSize(...) { return 0; }" in source
    prototypes = {"f_bufferSize": ["handle_t handle", "float alpha", "int *lwork"]}
    assert (
        "int f_bufferSize(long a0, float a1, int* a2, ...) { if (a2) *a2 = 0; return 0; }"
        in _signatures.write_source({"f_bufferSize"}, prototypes)
    )


def test_torch_is_the_installed_one() -> None:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    assert standin.find_torch().folder == Path(spec.origin).parent
