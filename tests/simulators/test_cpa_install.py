import importlib.metadata
import subprocess
import sys

import pytest

from evidence.errors import ConfigError
from simulators.cpa import compat

BOTH = r'pip install -e "\.\[cpa\]" && pip install --no-deps --ignore-requires-python cpa-tools==0\.8\.8'


def test_a_missing_package_names_both_install_lines(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ConfigError, match=rf"CPA needs cpa-tools, which is not installed\. Install it with: {BOTH}"):
        compat.require()


def test_the_empty_package_of_a_plain_install_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.0" if name == "cpa-tools" else "1")
    with pytest.raises(ConfigError, match=rf"expected cpa-tools 0\.8\.8, got 0\.0\.0 \(an empty package.*{BOTH}"):
        compat.require()


def test_importing_the_package_imports_no_torch():
    code = "import sys, simulators.cpa.compat, simulators.cpa.trainer, simulators.stored; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
