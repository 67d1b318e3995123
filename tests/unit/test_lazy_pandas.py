"""Arrow makes arrays without pandas, and still knows it where pandas is used."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
import numpy as np, pyarrow as pa
from tidelog.core.lazy_pandas import skip_pandas
skip_pandas()
import pyarrow.dataset
arrays = pa.array([1, None]), pa.array(np.arange(2)), pa.scalar(1), pa.array([1]).to_numpy()
assert "pandas" not in sys.modules
table = pa.table({"n": [1.0, None]})
import pandas as pd
assert table.to_pandas().equals(pd.DataFrame({"n": [1.0, None]}))
assert pa.array(pd.Series([1.0, None])).null_count == 1
skip_pandas()
assert pa.array(pd.Series([1.0, None])).null_count == 1
"""


def test_arrays_load_no_pandas_and_tables_become_frames() -> None:
    subprocess.run([sys.executable, "-c", _CODE], check=True)
