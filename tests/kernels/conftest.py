"""What several tests of kernels need."""

import shutil
from pathlib import Path

import pytest

from tests.kernels.installed import PACKAGE


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of what kernels need, as an installation of its own."""
    place = tmp_path / "installed"
    shutil.copytree(PACKAGE, place / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    return place
