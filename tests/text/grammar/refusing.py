"""The refusal of a writer of grammars, with the name of the field."""

from collections.abc import Callable

import pytest

from deployments.contract.errors import Refused, RequestError


def refusal(write: Callable[[], str]) -> RequestError:
    with pytest.raises(Refused) as caught:
        write()
    assert caught.value.error.param == "field"
    return caught.value.error
