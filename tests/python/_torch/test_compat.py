# SPDX-License-Identifier: BSD-3-Clause
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from tidegauge._torch import compat
from tidegauge._torch.compat import (
    BUILT_FOR,
    REBUILD,
    SUPPORTED,
    check_torch_version,
    explain_mismatch,
)


@pytest.mark.parametrize("found", ["2.13.0", "2.13.1", "2.13.0+cpu", "2.13.0a0+git1234"])
def test_same_minor_version_is_accepted(found: str) -> None:
    assert explain_mismatch(found, "2.13") is None


@pytest.mark.parametrize("found", ["2.12.1", "2.14.0+cu130", "3.13.0", "2.1.3", "2", "unknown"])
def test_other_version_is_explained(found: str) -> None:
    message = explain_mismatch(found, "2.13")
    assert message is not None
    assert message.startswith(f"tidegauge was built for torch 2.13, but found torch {found}. Run `")
    assert "pip install 'torch==2.13.*'" in message


def test_rebuild_is_suggested_only_for_a_supported_torch() -> None:
    rebuild = f"`{REBUILD}` in the sources"
    assert rebuild in str(explain_mismatch("2.15.0+cu132", "2.13"))
    unknown = str(explain_mismatch("2.9.1", "2.13"))
    assert rebuild not in unknown
    assert "tidegauge supports torch 2.10 to 2.15" in unknown


def test_installed_torch_passes() -> None:
    check_torch_version()


def test_torch_is_not_loaded_before_it_is_needed() -> None:
    script = (
        "import sys, tidegauge, tidegauge.cli.main\n"
        "try: tidegauge.cli.main.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
        "assert tidegauge.MemTracker and 'torch' in sys.modules\n"
        "assert not set(tidegauge.__all__) - set(dir(tidegauge))\n"
        "assert all(hasattr(tidegauge, name) for name in tidegauge.__all__)\n"
        "assert tidegauge.mod_tracker.ModTracker is tidegauge.ModTracker\n"
        "assert not hasattr(tidegauge, 'Nothing')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_version_is_found_without_importing_torch() -> None:
    script = (
        "import sys\n"
        "from tidegauge._torch.compat import find_torch_version\n"
        "version = find_torch_version()\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert version == torch.__version__\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_extension_loads_before_torch_and_tracks_after_it() -> None:
    script = (
        "import sys\n"
        "from tidegauge import _C\n"
        "assert 'torch' not in sys.modules and _C.is_out_of_memory('') is False\n"
        "import torch, tidegauge\n"
        "with tidegauge.MemTracker() as tracker:\n"
        "    torch.nn.Linear(8, 8)(torch.ones(2, 8)).sum().backward()\n"
        "assert sum(sum(each.values()) for each in tracker.get_tracker_snapshot('peak').values())\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_other_torch_is_reported_before_compiled_code_is_loaded() -> None:
    script = (
        "import sys, types\n"
        "sys.modules['torch'] = types.SimpleNamespace(__version__='2.99.0')\n"
        "import tidegauge\n"
        "for use in ('_C', 'attach_thread', 'MemTracker', 'simulate', 'estimate'):\n"
        "    try: getattr(tidegauge, use)\n"
        "    except tidegauge.TorchError as error: assert 'found torch 2.99.0' in str(error)\n"
        "    else: raise AssertionError(use)\n"
        "assert 'tidegauge._C' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_other_torch_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="2.99.0"))
    with pytest.raises(ImportError, match=r"found torch 2\.99\.0"):
        check_torch_version()


def test_missing_torch_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=f"needs torch {BUILT_FOR}, but found none"):
        check_torch_version()


@pytest.mark.parametrize(
    ("found", "is_enough"), [(None, False), ("2.9.1", False), ("2.16.0", False), ("2.14.1", True)]
)
def test_part_without_torch_names_a_torch_that_can_be_used(
    found: str | None, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "BUILT_FOR", "")
    monkeypatch.setattr(compat, "find_torch_version", lambda: found)
    with pytest.raises(ImportError) as caught:
        check_torch_version()
    assert f"`{REBUILD}`" in str(caught.value)
    assert (f"pip install 'torch=={SUPPORTED[-1]}.*'" in str(caught.value)) != is_enough


def test_torch_that_cannot_be_imported_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('broken')")
    code = "from tidegauge._torch.compat import find_torch_version; print(find_torch_version())"
    folders = os.pathsep.join([str(tmp_path), str(Path(compat.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "None\n", done.stderr
