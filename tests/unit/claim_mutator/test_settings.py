"""Settings: flags, environment, mistakes."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pydantic import ValidationError

from claim_mutator.settings import Settings


@pytest.fixture(autouse=True)
def _no_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tessera-mutator"])


def test_defaults() -> None:
    settings = Settings()
    assert (settings.listen, settings.http_address) == ("0.0.0.0:8443", "0.0.0.0:9471")
    assert settings.rules.names.count == ("nvidia.com/gpu",)
    assert settings.rules.default_count == 1


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_LISTEN", "127.0.0.1:1")
    monkeypatch.setenv("TESSERA_RESOURCE_COUNT", "nvidia.com/gpu,nvidia.com/vgpu")
    monkeypatch.setattr(
        sys, "argv", ["tessera-mutator", "--listen", "[::]:2", "--resource-memory", "a/b,c/d"]
    )
    settings = Settings()
    assert settings.listen == "[::]:2"
    assert settings.rules.names.count == ("nvidia.com/gpu", "nvidia.com/vgpu")
    assert settings.rules.names.memory == ("a/b", "c/d")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listen": "8443"}, "ADDRESS:PORT"),
        ({"listen": "localhost:8443"}, "ADDRESS:PORT"),
        ({"http_address": "0.0.0.0:70000"}, "ADDRESS:PORT"),
        ({"resource_count": "gpu!"}, "not a resource name"),
        ({"resource_count": ""}, "at least 1 item"),
        ({"resource_memory": "nvidia.com/gpu"}, "can't mean both count and memory"),
        ({"default_count": 33}, "less than or equal to 32"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings(**values)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(listen="x", default_count=0, log_level="loud")
    assert len(caught.value.errors()) == 3
