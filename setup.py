"""What setup.cfg cannot say about a wheel with compiled modules: see packaging/wheel."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "packaging" / "wheel"))

from build_backend import setup_arguments

setup(**setup_arguments())
