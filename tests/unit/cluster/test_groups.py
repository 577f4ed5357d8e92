"""Which tests of real clusters stay together in one process."""

from __future__ import annotations

import pytest

from tests.cluster import conftest


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("test_quota.py::test_a[1.37]", "1.37"),
        ("test_vertical.py::test_b[1.36-driver-9470-x]", "1.36"),
        ("test_corpus.py::test_runs[1.37-two-001-default-use]", "test_corpus 1.37"),
        ("test_claims.py::test_c[1.36]", "test_claims 1.36"),
        ("test_mig.py::test_d", "test_mig"),
        ("test_harness.py::test_e[1.37.99]", "test_harness"),
    ],
)
def test_group(monkeypatch: pytest.MonkeyPatch, test: str, expected: str) -> None:
    monkeypatch.setattr(conftest, "VERSIONS", ["1.37", "1.36"])
    assert conftest.group(f"tests/cluster/{test}") == expected
