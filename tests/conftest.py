"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of published results and small public data sets, which lies beside the clone."""
    if not REFERENCE.is_dir():
        pytest.skip("the reference data, ../shared/reference, is not here")
    return REFERENCE
