"""Triton reads this where a kernel is decorated, so it must be set before any module with kernels is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
