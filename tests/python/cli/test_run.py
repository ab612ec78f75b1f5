# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge run` on scripts that do not mention tidegauge."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_command
from tidegauge.cli.run import name_trace
from tidegauge.report import Summary, read_summary
from tidegauge.report.text import describe_health

SCRIPTS = Path(__file__).parent / "scripts"


run = functools.partial(run_command, "run")


def read_good(path: Path) -> Summary:
    summary = read_summary(path)
    assert summary.health.is_good, summary.health
    assert not path.with_name(path.name + "-journal").exists()
    return summary


def test_scripts_do_not_mention_tidegauge() -> None:
    assert not [path for path in SCRIPTS.iterdir() if "tidegauge" in path.read_text()]


def test_plain_loop_with_workers_is_recorded(tmp_path: Path) -> None:
    script = str(SCRIPTS / "plain_loop.py")
    done = run(tmp_path, script, "--lr", "3", "-o", "mine")
    assert done.returncode == 5, done.stderr
    assert done.stdout == "__main__ ['--lr', '3', '-o', 'mine'] trained\n"
    assert done.stderr.startswith("tidegauge: peak on cpu: ")
    assert done.stderr.endswith("tidegauge: next: tidegauge report plain_loop.tide\n")
    summary = read_good(tmp_path / "plain_loop.tide")
    assert (summary.step_count, summary.optimizer_step_count) == (3, 3)
    (peak,) = summary.peaks
    assert peak.categories["Parameter"] == 4 * (64 * 256 + 256 + 256 * 8 + 8)
    assert peak.units == ()

    again = run(tmp_path, script)
    assert again.returncode == 5, again.stderr
    assert again.stderr.startswith(
        "tidegauge: plain_loop.tide exists; recording to plain_loop.2.tide (--force replaces it)\n"
    )
    read_good(tmp_path / "plain_loop.2.tide")
    forced = run(tmp_path, "--force", "-q", script)
    assert (forced.returncode, forced.stderr) == (5, "")


def test_report_and_page_are_written_at_the_end(tmp_path: Path) -> None:
    script = str(SCRIPTS / "plain_loop.py")
    done = run(tmp_path, "--report", "--html", "page.html", script)
    assert (done.returncode, done.stdout) == (5, "__main__ [] trained\n")
    assert "Modules at the peak on cpu" in done.stderr
    assert "plain_loop.py:17 main" in done.stderr  # Lines at the peak
    assert "next:" not in done.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    again = run(tmp_path, "--html", "page.html", script)  # numbers its files
    assert again.returncode == 5
    assert "tidegauge: wrote page.2.html\n" in again.stderr


def test_module_runs_as_with_python_m(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    text = "import sys; print(__name__, __package__, __spec__.name, sys.argv, sys.path[0])\n"
    (package / "train.py").write_text(text)
    done = run(tmp_path, "-v", "-m", "shop.train", "-m", "x")
    plain = subprocess.run(
        [sys.executable, "-m", "shop.train", "-m", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == plain.stdout
    assert done.returncode == 0
    assert "tidegauge: recording to train.tide\n" in done.stderr
    assert "tidegauge: the run created no tensors\n" in done.stderr


def test_script_sees_the_same_environment_as_with_python(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "helper.py").write_text("value = 7\n")
    (folder / "script.py").write_text(
        "import sys, helper, multiprocessing\n"
        "class Pickled: pass\n"
        "import pickle; pickle.loads(pickle.dumps(Pickled()))\n"
        "print(helper.value, __name__, __file__, __spec__, sys.argv, sys.path[0])\n"
        "print(sorted(globals()))\n"
        "sys.exit('failed on purpose')\n"
    )
    done = run(tmp_path, "folder/script.py", "a")
    plain = subprocess.run(
        [sys.executable, "folder/script.py", "a"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == plain.stdout
    assert done.returncode == plain.returncode == 1
    assert done.stderr.startswith(plain.stderr)


def test_exception_is_shown_without_our_frames(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from torch import nn\n"
        "class Wrong(nn.Module):\n"
        "    def forward(self, x):\n"
        "        raise KeyError('lost')\n"
        "Wrong()(1)\n"
    )
    done = run(tmp_path, "wrong.py")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert "KeyError: 'lost'\ntidegauge: " in done.stderr
    traceback = done.stderr.partition("KeyError")[0]
    assert "/tidegauge/" not in traceback
    assert "runpy" not in traceback
    read_good(tmp_path / "wrong.tide")


def test_out_of_memory_is_reported_and_the_script_continues(tmp_path: Path) -> None:
    done = run(tmp_path, str(SCRIPTS / "out_of_memory.py"))
    assert done.returncode == 1
    assert "DefaultCPUAllocator: can't allocate memory" in done.stderr
    assert "tidegauge: the run ran out of memory\n" in done.stderr
    (peak,) = read_good(tmp_path / "out_of_memory.tide").peaks
    activations = 4 * 1024 * 64 * 4
    assert peak.categories["Activation"] + peak.saved_bytes >= activations


def test_ctrl_c_completes_the_trace_and_exits_with_130(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegauge", "run", str(SCRIPTS / "endless.py")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "training\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "KeyboardInterrupt\ntidegauge: peak on cpu: " in error
    read_good(tmp_path / "endless.tide")


def test_sigterm_completes_the_trace_and_ends_the_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegauge", "run", str(SCRIPTS / "endless.py")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "training\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM
    summary = read_good(tmp_path / "endless.tide")
    assert summary.facts["ended_by"] == "SIGTERM"
    assert describe_health(summary) == ["The run was ended by SIGTERM."]


def test_scripts_own_handler_of_sigterm_is_called(tmp_path: Path) -> None:
    (tmp_path / "handles.py").write_text(
        "import os, signal, sys, torch\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "kept = torch.ones(1000)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "kept = None\n"
    )
    assert run(tmp_path, "handles.py").returncode == 7
    assert read_good(tmp_path / "handles.tide").peak_bytes == 4000


def test_sigterm_ends_a_forked_child_at_once(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(
        "import os, signal, time, torch\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(100)\n"
        "time.sleep(0.2)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGTERM\n"
        "kept = torch.ones(1000)\n"
    )
    assert run(tmp_path, "forks.py").returncode == 0
    assert read_good(tmp_path / "forks.tide").peak_bytes == 4000


def test_forked_child_prints_nothing_and_does_not_touch_the_trace(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(
        "import os, sys, torch\n"
        "kept = torch.ones(1000)\n"
        "if os.fork() == 0:\n"
        "    more = torch.ones(100_000)\n"
        "    sys.exit(0)\n"
        "os.wait()\n"
    )
    done = run(tmp_path, "forks.py")
    assert done.returncode == 0
    assert done.stderr.count("next: tidegauge report") == 1
    (peak,) = read_good(tmp_path / "forks.tide").peaks
    assert peak.total_bytes == 4000


def test_hugging_face_trainer_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    done = run(tmp_path, str(SCRIPTS / "hf_trainer.py"), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    summary = read_good(tmp_path / "hf_trainer.tide")
    assert (summary.step_count, summary.optimizer_step_count) == (3, 3)
    (peak,) = summary.peaks
    layers = next(m for m in peak.modules if m.name == "LlamaForCausalLM.model.layers")
    assert 0 < layers.categories["Parameter"] < peak.categories["Parameter"]
    assert peak.categories["Optstate"] >= 2 * peak.categories["Parameter"]


def test_lightning_run_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    done = run(tmp_path, str(SCRIPTS / "lightning_run.py"))
    assert done.returncode == 0, done.stderr
    summary = read_good(tmp_path / "lightning_run.tide")
    assert (summary.step_count, summary.optimizer_step_count) == (3, 3)
    (peak,) = summary.peaks
    assert peak.categories["Parameter"] == 4 * (16 * 64 + 64 + 64 + 1)


def test_fsdp2_under_torchrun_records_one_file_per_rank(tmp_path: Path) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    done = run(tmp_path, str(SCRIPTS / "fsdp2.py"), launcher=(*torchrun, "--nproc-per-node", "2"))
    assert done.returncode == 0, done.stderr
    assert "tidegauge: rank 0: for all ranks: tidegauge merge fsdp2.rank*.tide\n" in done.stderr
    ranks = [read_good(tmp_path / f"fsdp2.rank{rank}.tide") for rank in (0, 1)]
    assert [(rank.rank, rank.world_size, rank.step_count) for rank in ranks] == [
        (0, 2, 2),
        (1, 2, 2),
    ]
    assert ranks[1].peak_bytes > ranks[0].peak_bytes  # its batch is larger
    for rank in ranks:
        (peak,) = (peak for peak in rank.peaks if peak.device == "cpu")
        layer_bytes = {"0": 4 * (64 * 256 + 256), "2": 4 * (256 * 64 + 64)}
        assert {unit.name for unit in peak.units} == layer_bytes.keys()
        for unit in peak.units:  # two steps, each gathers in forward and backward
            assert unit.categories["Sharded Param"] == layer_bytes[unit.name] // 2
            assert (unit.gather_count, unit.reduce_count) == (4, 2)
        assert peak.categories["Sharded Param"] == sum(layer_bytes.values()) // 2
        assert "Parameter" not in peak.categories
        assert "Gradient" not in peak.categories


def test_fsdp2_is_patched_although_it_was_looked_up_before(tmp_path: Path) -> None:
    (tmp_path / "looks.py").write_text(
        "import importlib.util, torch, torch.distributed as dist\n"
        "importlib.util.find_spec('torch.distributed.fsdp')\n"
        "from torch.testing._internal.distributed.fake_pg import FakeStore\n"
        "dist.init_process_group('fake', rank=0, world_size=2, store=FakeStore())\n"
        "import torch.distributed.fsdp as fsdp\n"
        "mesh = dist.device_mesh.init_device_mesh('cpu', (2,))\n"
        "model = fsdp.fully_shard(torch.nn.Linear(64, 32), mesh=mesh)\n"
        "model(torch.ones(8, 64)).sum().backward()\n"
    )
    done = run(tmp_path, "-v", "looks.py")
    assert done.returncode == 0, done.stderr
    assert "missing" not in done.stderr
    peak = read_good(tmp_path / "looks.tide").peaks[0]
    (unit,) = peak.units
    assert unit.name == "(root)"
    assert unit.categories["Sharded Param"] == 4 * (64 * 32 + 32) // 2


def test_fsdp2_is_not_imported_if_unused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "import sys, torch\n"
        "print('torch.distributed.fsdp' in sys.modules)\n"
        "from torch.distributed import fsdp\n"
        "print(type(fsdp.__spec__.loader).__name__, vars(fsdp.__spec__.loader).keys())\n"
    )
    done = run(tmp_path, "plain.py")
    plain = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == plain.stdout
    assert done.stdout.startswith("False\nSourceFileLoader")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no script given; usage: tidegauge run"),
        (["nowhere.py"], "no such script: nowhere.py"),
        (["-m", "no_such_module"], "no such module: no_such_module"),
        (["-m"], "no script given"),
        (["-o", "missing/x.tide", str(SCRIPTS / "plain_loop.py")], "its folder does not exist"),
        (
            ["-o", "/proc/x.tide", str(SCRIPTS / "plain_loop.py")],
            "; choose a folder that you may write to",
        ),
    ],
    ids=["nothing", "no script", "no module", "no name", "no folder", "folder that refuses"],
)
def test_bad_input_is_reported_in_one_line_before_the_run(
    tmp_path: Path,
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tidegauge.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["run", *arguments]) in (1, 2)
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert [*tmp_path.iterdir()] == []


LATE_WORK = """
import atexit, concurrent.futures, threading, time, torch
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(lambda: None)
kept = []
def work():
    time.sleep(0.2)
    kept.append(torch.ones(1 << 18))
threading.Thread(target=work).start()
atexit.register(lambda: kept.append(torch.ones(1 << 19)))
"""


def test_recording_ends_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE_WORK)
    done = run(tmp_path, "late.py")
    assert done.returncode == 0, done.stderr
    assert "peak on cpu: 3.00 MiB" in done.stderr
    (peak,) = read_good(tmp_path / "late.tide").peaks
    assert peak.total_bytes == (1 << 20) + (1 << 21)


@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]])
@pytest.mark.parametrize("end", ["", "sys.exit(7)"])
def test_exit_code_is_kept_if_the_script_closes_its_output(
    tmp_path: Path, names: list[str], end: str
) -> None:
    closing = "".join(f"sys.{name}.close()\n" for name in names)
    (tmp_path / "quiet.py").write_text(f"import sys, torch\nx = torch.ones(8)\n{closing}{end}\n")
    done = run(tmp_path, "quiet.py")
    plain = subprocess.run([sys.executable, "quiet.py"], cwd=tmp_path, check=False)
    assert done.returncode == plain.returncode
    assert read_good(tmp_path / "quiet.tide").peaks[0].total_bytes == 32


def test_trace_is_named_after_the_script_and_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert name_trace("jobs/train.py", False, None) == "train.tide"
    assert name_trace("jobs/train.v2.py", False, None) == "train.v2.tide"
    assert name_trace("shop.train", True, None) == "train.tide"
    assert name_trace("train.py", False, "a/b.tide") == "a/b.tide"
    monkeypatch.setenv("RANK", "3")
    assert name_trace("train.py", False, None) == "train.rank3.tide"
    assert name_trace("train.py", False, "a/b.tide") == "a/b.rank3.tide"
    assert name_trace("train.py", False, "b") == "b.rank3.tide"
