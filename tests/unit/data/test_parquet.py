"""Parquet files, with either library; `parquet_checks.py` says why each has a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from deeprec_ext.data.readers import by_name
from deeprec_ext.errors import UsageError

CHECKS = Path(__file__).with_name("parquet_checks.py")


@pytest.mark.parametrize("library", ["pyarrow", "tensorflow_io"])
def test_parquet_gives_columns(library):
    if find_spec(library) is None:
        pytest.skip(f"no {library}")
    done = subprocess.run(
        [sys.executable, str(CHECKS), library], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_without_either_it_says_what_to_install_and_why(tmp_path):
    """pyarrow 26 and later refuse the NumPy of TensorFlow 2.15 when they are imported."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('pyarrow requires NumPy 2.0 or newer')")
    (tmp_path / "tensorflow_io.py").write_text("raise ImportError('none')")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.modules["tensorflow"] = type(sys)("tensorflow")
from deeprec_ext.data.readers import by_name
from deeprec_ext.errors import UsageError
try:
    by_name("parquet").sample({str(CHECKS.with_name("table.parquet"))!r})
except UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert 'pip install "pyarrow<25"' in done.stdout and "requires NumPy 2.0" in done.stdout


def test_a_tensorflow_io_for_another_tensorflow_is_told(monkeypatch):
    """What release 0.36 does beside TensorFlow 2.17."""
    tf = pytest.importorskip("tensorflow")

    class Unloadable(types.ModuleType):
        @property
        def IOTensor(self):
            raise NotImplementedError("unable to open file: libtensorflow_io.so, undefined symbol")

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "tensorflow_io", Unloadable("tensorflow_io"))
    with pytest.raises(UsageError, match=f"not built for TensorFlow {re.escape(tf.__version__)}: pip install"):
        by_name("parquet").sample(str(CHECKS.with_name("table.parquet")))
