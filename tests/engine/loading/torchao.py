"""Helpers of tests that quantize by torchao."""

import pytest

from deployments.engine.loading.quantization import QuantizationError, torchao


def skip_without_torchao() -> None:
    try:
        torchao()
    except QuantizationError as error:
        pytest.skip(str(error), allow_module_level=True)
