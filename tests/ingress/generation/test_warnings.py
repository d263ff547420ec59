"""A warning of a field that is left out is one short line, whatever the request has called it."""

from deployments.ingress.generation.warnings import MAX_LENGTH, warning_headers


def test_a_warning_is_a_header_whatever_it_quotes() -> None:
    [(name, value)] = warning_headers(["tools[0]: \u65e5\r\nx-evil: 1", "two" * MAX_LENGTH])
    assert name == b"x-manta-warning"
    assert value.startswith(b"tools[0]: \\u65e5??x-evil: 1; twotwo")
    assert len(value) <= MAX_LENGTH + 5
    assert warning_headers([]) == []
