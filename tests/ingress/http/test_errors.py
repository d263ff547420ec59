"""The table has every kind, and no failure shows its inside."""

import logging
import pickle

import pytest

from deployments.contract.errors import ErrorKind, Refused, RequestError, refused
from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.http.errors import ERRORS, error_response, internal_error, public_error


def test_every_kind_has_a_row() -> None:
    assert set(ERRORS) == set(ErrorKind)


def test_inside_failures_are_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = public_error(internal_error("secret"), "the-id")
    assert "secret" not in error.message
    assert "the-id" in error.message
    assert "secret" in caplog.text


def test_other_errors_are_told_as_they_are() -> None:
    error = RequestError(ErrorKind.OVERLOADED, "busy")
    assert public_error(error, "x") is error
    response = error_response(error, openai_envelope, "x", {"allow": "GET"})
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert response.headers["allow"] == "GET"


def test_a_refusal_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(refused("no", "field")))
    assert isinstance(again, Refused)
    assert (again.error, str(again)) == (refused("no", "field").error, "no")
