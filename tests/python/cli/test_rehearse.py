# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge rehearse` on scripts that know nothing of it."""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import run_command
from tidegauge import standin
from tidegauge.allocator import find_device
from tidegauge.cli import rehearse as rehearse_command
from tidegauge.cli.common import UsageError
from tidegauge.report import read_summary

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples" / "python" / "rehearse"


def _why_not() -> str | None:
    try:
        standin.find_torch()
        standin.find_compiler()
    except standin.StandinError as error:
        return str(error)
    return None


needs_cuda = pytest.mark.skipif(_why_not() is not None, reason=str(_why_not()))


rehearse = functools.partial(run_command, "rehearse")


def read_reserved(text: str) -> tuple[str, str, str]:
    found = re.search(r"peak reserved (.*?) of (.*?) \(.*\): (.*)", text)
    assert found is not None, text
    return found[1], found[2], found[3]


@needs_cuda
def test_single_gpu_script_runs_its_steps_and_fits(tmp_path: Path) -> None:
    done = rehearse(tmp_path, str(EXAMPLES / "single_gpu.py"), "--width", "1024")
    assert done.returncode == 0, done.stderr
    # The third step ends before it prints.
    assert done.stdout == "".join(
        f"step {step}: loss 1.000, gradient norm 1.000\n" for step in range(2)
    )
    assert "ended the script after 3 optimizer steps (--steps 3)" in done.stderr
    assert read_reserved(done.stderr)[1:] == ("79.1 GiB", "fits")
    summary = read_summary(tmp_path / "single_gpu.tide")
    assert summary.health.is_good
    peak = next(peak for peak in summary.peaks if peak.device == "cuda:0")
    # As torch's allocator counts: the last bias has 40 bytes and gets 512.
    assert peak.categories["Parameter"] == 4 * (8 * (1024 * 1024 + 1024) + 1024 * 10) + 512


@needs_cuda
@pytest.mark.parametrize(
    ("name", "gpus", "arguments"),
    [
        ("ddp", "8", ()),
        ("tensor_parallel", "4", ()),
        (
            "fsdp",
            "8",
            "--width 256 --hidden 512 --layers 2 --heads 4 --kv-heads 2 --words 1024 --seq 128",
        ),
    ],
)
def test_parallel_script_runs_as_one_rank(
    tmp_path: Path, name: str, gpus: str, arguments: str
) -> None:
    words = arguments.split() if arguments else []
    done = rehearse(tmp_path, "--gpus", gpus, str(EXAMPLES / f"{name}.py"), *words)
    assert done.returncode == 0, done.stderr
    assert "step 1: loss 1.000" in done.stdout
    assert "rank 0: ended the script after 3 optimizer steps" in done.stderr
    assert read_reserved(done.stderr)[2] == "fits"
    assert (tmp_path / f"{name}.rank0.tide").exists()


@needs_cuda
@pytest.mark.parametrize(
    ("name", "options", "packages"),
    [
        ("compiled", "", "triton"),
        ("cuda_graph", "", ""),
        ("context_parallel", "--gpus 4", ""),
        ("expert_parallel", "--gpus 4", ""),
        ("hybrid_sharding", "--nodes 2 --gpus 4", ""),
        ("transformers_trainer", "", "transformers accelerate"),
        ("transformers_trainer", "--gpus 8", "transformers accelerate"),
        ("accelerate_loop", "--gpus 8", "accelerate"),
        ("lightning_module", "", "pytorch_lightning"),
        ("lightning_module", "--gpus 4", "pytorch_lightning"),
        ("trl_sft", "--gpus 8", "trl datasets"),
    ],
)
def test_example_runs_to_its_end(tmp_path: Path, name: str, options: str, packages: str) -> None:
    for package in packages.split():
        pytest.importorskip(package)
    script = str(EXAMPLES / f"{name}.py")
    done = rehearse(tmp_path, "--steps", "0", *options.split(), script)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert re.search(r"loss 1\.000|'loss': '?1", text), text
    assert read_reserved(done.stderr)[2] == "fits"


def make_torchtitan_assets(folder: Path) -> None:
    """What torchtitan's debug models read from its repository: a tokenizer and texts."""
    tokenizers = pytest.importorskip("tokenizers")
    assets = folder / "tests" / "assets"
    (assets / "tokenizer").mkdir(parents=True)
    (assets / "c4_test").mkdir()
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i + 3 for i in range(1997)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(assets / "tokenizer" / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (assets / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    texts = [" ".join(f"w{i * j % 1997}" for j in range(400)) for i in range(2000)]
    (assets / "c4_test" / "data.json").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts)
    )


@needs_cuda
def test_trainer_of_torchtitan_runs(tmp_path: Path) -> None:
    pytest.importorskip("torchtitan")
    make_torchtitan_assets(tmp_path)
    done = rehearse(
        tmp_path,
        *("--gpus", "8", "-m", "torchtitan.train", "--module", "llama3"),
        *("--config", "llama3_debugmodel", "--compile.no-enable"),
        *("--parallelism.tensor_parallel_degree", "2"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"step: +2 .*loss: +1\.0000", done.stdout + done.stderr), done.stderr
    assert "ended the script after 3 optimizer steps" in done.stderr


@needs_cuda
def test_stages_of_a_pipeline_learn_shapes_from_earlier_ranks(tmp_path: Path) -> None:
    script = str(EXAMPLES / "pipeline.py")
    done = rehearse(tmp_path, "--gpus", "4", "--rank", "0,2,3", script)
    assert done.returncode == 0, done.stderr
    assert "step 1: loss 1.000" in done.stdout
    assert done.stderr.count("ended the script after 3 optimizer steps") == 3


@needs_cuda
def test_stages_are_sliced_and_sharded_too(tmp_path: Path) -> None:
    sizes = "--width 256 --hidden 512 --layers 4 --heads 8 --words 1024 --seq 128"
    script = str(EXAMPLES / "four_dimensions.py")
    words = [script, "--tp", "2", "--pp", "2", *sizes.split()]
    done = rehearse(tmp_path, "--gpus", "8", "--rank", "0,7", "--steps", "2", *words)
    assert done.returncode == 0, done.stderr
    assert "step 0: loss 1.000" in done.stdout
    assert done.stderr.count("ended the script after 2 optimizer steps") == 2


@needs_cuda
def test_stage_without_earlier_ranks_says_what_to_do(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "--gpus", "4", "--rank", "1", str(EXAMPLES / "pipeline.py"))
    assert done.returncode == 1
    assert "rank 1 waits for Python objects from rank 0" in done.stderr
    assert "--rank 0,1" in done.stderr


@needs_cuda
def test_run_that_needs_too_much_is_out_of_memory(tmp_path: Path) -> None:
    script = str(EXAMPLES / "single_gpu.py")
    done = rehearse(tmp_path, "--device-memory", "2GiB", script, "--width", "8192")
    assert done.returncode == 3, done.stderr
    assert "torch.OutOfMemoryError: CUDA out of memory" in done.stderr
    assert "the run ran out of memory" in done.stderr
    assert read_reserved(done.stderr)[1:] == ("2.00 GiB", "does not fit")


@needs_cuda
def test_out_of_memory_that_a_library_wraps_does_not_fit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "try:\n"
        "    torch.empty(1 << 40, device='cuda')\n"
        "except RuntimeError as error:\n"
        "    raise RuntimeError('in a schedule') from error\n"
    )
    done = rehearse(tmp_path, str(script))
    assert done.returncode == 3, done.stderr
    assert "does not fit" in done.stderr or "the run ran out of memory" in done.stderr


@needs_cuda
def test_last_rank_of_a_large_job_needs_no_others(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('cpu:gloo,cuda:nccl')\n"
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "x = torch.ones(4, device='cuda') * dist.get_rank()\n"
        "dist.all_reduce(x)\n"
        "dist.all_reduce(torch.ones(4))\n"
        "seen = [None] * dist.get_world_size()\n"
        "dist.all_gather_object(seen, dist.get_rank())\n"
        "dist.barrier()\n"
        "print(dist.get_rank(), dist.get_world_size(), torch.cuda.current_device(), set(seen))\n"
    )
    done = rehearse(tmp_path, "--nodes", "64", "--gpus", "8", "--rank", "0,511", str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 512 0 {0}\n511 512 7 {511}\n"
    assert done.stderr.count("the script ended by itself after 0 optimizer steps") == 2
    assert sorted(path.name for path in tmp_path.glob("*.tide")) == [
        "train.rank0.tide",
        "train.rank511.tide",
    ]


@needs_cuda
def test_exit_code_and_error_are_those_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.ones(2, device='cuda')\nraise SystemExit(7)\n")
    assert rehearse(tmp_path, "-q", str(script)).returncode == 7
    script.write_text("import torch\nx = torch.ones(2, device='cuda')\nx @ torch.ones(3).cuda()\n")
    done = rehearse(tmp_path, "--force", str(script))
    assert done.returncode == 1
    assert "RuntimeError: inconsistent tensor size" in done.stderr
    assert "tidegauge/" not in done.stderr.split("RuntimeError")[0]


@needs_cuda
def test_script_that_ends_right_after_backward_ends_cleanly(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(512, 512).cuda()\n"
        "layer(torch.ones(2, 512, device='cuda')).sum().backward()\n"
    )
    done = rehearse(tmp_path, str(script))
    assert done.returncode == 0, done.stderr


@needs_cuda
def test_interrupt_ends_script_and_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch\ntorch.ones(2, device='cuda')\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "tidegauge", "rehearse", str(script)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert time.monotonic() - begin < 20
    assert "KeyboardInterrupt" in errors
    assert read_summary(tmp_path / "train.tide").health.is_good


@needs_cuda
def test_torchrun_command_gives_the_size_of_the_job(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, sys\nprint(os.environ['WORLD_SIZE'], sys.argv[1:])\n")
    done = rehearse(
        tmp_path,
        *("torchrun", "--nnodes", "2", "--nproc-per-node=4", str(script), "--lr", "1"),
    )
    assert done.stdout == "8 ['--lr', '1']\n", done.stderr


def test_without_cuda_the_script_is_simulated(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(512, 512).cuda()\n"
        "optimizer = torch.optim.AdamW(layer.parameters())\n"
        "while True:\n"
        "    loss = layer(torch.ones(2, 512, device='cuda')).sum()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    done = rehearse(tmp_path, "--engine", "simulated", "--steps", "2", str(script))
    assert done.returncode == 0, done.stderr
    assert "ended the script after 2 optimizer steps" in done.stderr
    assert "peak reserved" in done.stderr
    assert "of 79.1 GiB" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "0", "x.py"), "invalid number '0' (expected 1 or more"),
        (("--rank", "8", "--gpus", "8", "x.py"), "invalid rank '8' (expected 0 to 7 for 8 ranks)"),
        (("--rank", "x", "x.py"), "invalid rank 'x' (expected 0 to 0 for 1 ranks)"),
        (("--device", "h1000", "x.py"), "unknown device 'h1000'"),
        (("--mask-fraction", "2", "x.py"), "invalid fraction '2' (expected 0 to 1)"),
        (("--routing", "best", "x.py"), "invalid routing 'best' (expected balanced, worst, or"),
        (("missing.py",), "no such script: missing.py"),
        ((), "no script given"),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "x.py").touch()
    done = rehearse(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


def test_doctor_says_ten_things(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "doctor"], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 10, done.stdout
    as_json = subprocess.run(
        [sys.executable, "-m", "tidegauge", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert {row["what"] for row in json.loads(as_json.stdout)} >= {"torch", "stand-in", "rehearse"}


def _make_arguments(**changed: object) -> argparse.Namespace:
    given = {"engine": "auto", "beside_gpu": False, "gpus": 1, "nodes": 1, "assume": []}
    return argparse.Namespace(**{**given, "events": "quick", "quiet": False, **changed})


def _choose(arguments: argparse.Namespace) -> str:
    return rehearse_command._choose_engine(arguments, find_device("h100-80g"))[1]


def test_real_gpu_is_refused_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    built = standin.Standin(Path("nowhere"), ())
    monkeypatch.setattr(standin, "find_gpu", lambda: "/dev/nvidia0")
    monkeypatch.setattr(standin, "find_built", lambda: built)
    monkeypatch.setattr(standin, "build", lambda: built)
    with pytest.raises(UsageError, match=r"has a GPU \(/dev/nvidia0\).*--beside-gpu"):
        _choose(_make_arguments())
    assert _choose(_make_arguments(beside_gpu=True)) == "real"
    assert _choose(_make_arguments(engine="simulated")) == "simulated"


def test_torch_without_cuda_simulates_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise standin.StandinError("torch 2.15.0+cpu has no CUDA.")

    monkeypatch.setattr(standin, "find_gpu", lambda: None)
    monkeypatch.setattr(standin, "find_built", fail)
    assert _choose(_make_arguments()) == "simulated"
    said = capsys.readouterr().err
    assert "torch 2.15.0+cpu has no CUDA. Simulating instead: kernels, streams and" in said
    with pytest.raises(standin.StandinError):
        _choose(_make_arguments(engine="real"))
