"""Settings: flags, environment, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from claim_mutator.rules import DeviceClasses, HighPriority, Policy, Rules
from claim_mutator.settings import Settings, load, made
from kube.settings import SettingsError, fields
from kube.settings.sources import Found, flag


def found(values: dict[str, Any]) -> Found:
    return Found(values, {name: flag(name) for name in values})


def test_defaults() -> None:
    settings = load([], {})
    assert (settings.listen, settings.http_address) == ("[::]:8443", "[::]:9471")
    assert settings.rules.names.count == ("nvidia.com/gpu",)
    assert settings.rules.default_count == 1


def test_rules() -> None:
    assert made(Found()).rules == Rules()
    given: dict[str, Any] = dict(  # noqa: C408 - as one would write flags
        privileged="allow",
        preset_node_name="convert",
        high_priority="trusted",
        runtime_class="nvidia",
        default_memory=1000,
        default_cores=10,
        memory_factor=1024,
        replaced_schedulers="a, b",
        mig_device_class="m",
        hide_cards=True,
        placement="spread",
    )
    settings = made(found(given))
    assert settings.rules == Rules(
        default_memory=1000,
        default_cores=10,
        memory_factor=1024,
        privileged=Policy.CONVERT,
        node_name=Policy.CONVERT,
        high_priority=HighPriority.TRUSTED,
        runtime_class="nvidia",
        hide_cards=True,
        placement="spread",
        schedulers=("a", "b"),
        classes=DeviceClasses(mig="m"),
    )


def test_flags_win_over_the_environment() -> None:
    variables = {"TESSERA_LISTEN": "127.0.0.1:1", "TESSERA_RESOURCE_COUNT": "nvidia.com/gpu,nvidia.com/vgpu"}
    settings = load(["--listen", "[::]:2", "--resource-memory", "a/b,c/d"], variables)
    assert settings.listen == "[::]:2"
    assert settings.rules.names.count == ("nvidia.com/gpu", "nvidia.com/vgpu")
    assert settings.rules.names.memory == ("a/b", "c/d")


@pytest.mark.parametrize(
    ("arguments", "variable", "expected"),
    [
        ([], None, False),
        (["--hide-cards"], None, True),
        (["--hide-cards=false"], "true", False),
        ([], "true", True),
        ([], "yes", True),
        ([], "0", False),
    ],
)
def test_switches(arguments: list[str], variable: str | None, expected: bool) -> None:
    variables = {"TESSERA_HIDE_CARDS": variable} if variable is not None else {}
    assert load(arguments, variables).hide_cards is expected


def test_values_have_their_types() -> None:
    variables = {"TESSERA_KEEP_SECONDS": "600", "TESSERA_DEFAULT_COUNT": "2", "TESSERA_KUBECONFIG": "/a"}
    settings = load([], variables)
    assert (settings.keep_seconds, settings.default_count, settings.kubeconfig) == (600.0, 2, Path("/a"))


def test_every_setting_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(["--help"], {})
    told = capsys.readouterr().out
    assert [field.name for field in fields(Settings) if f"{flag(field.name)} " not in told] == []
    assert " (default" not in [line.strip()[:9] for line in told.splitlines()]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"listen": "8443"}, "ADDRESS:PORT"),
        ({"listen": "localhost:8443"}, "ADDRESS:PORT"),
        ({"http_address": "0.0.0.0:70000"}, "ADDRESS:PORT"),
        ({"resource_count": "gpu!"}, "names of resources"),
        ({"resource_count": ""}, "names of resources, such as nvidia.com/gpu"),
        ({"resource_memory": "nvidia.com/gpu"}, "can't mean both count and memory"),
        ({"default_count": "33"}, "--default-count can't be '33': write a whole number from 0 to 32"),
        ({"default_count": "many"}, "whole number"),
        ({"privileged": "convert"}, "write deny or allow"),
        ({"preset_node_name": "allow"}, "write deny or convert"),
        ({"memory_factor": "0"}, "from 1 to"),
        ({"hide_cards": "maybe"}, "write true or false"),
        ({"keeper_period": "0"}, "a number from 0.1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        made(found(values))
    assert message in caught.value.mistakes[0]


@pytest.mark.parametrize(
    "arguments", [["--listen"], ["--lisen", "0.0.0.0:1"], ["--list", "0.0.0.0:1"], ["x"]]
)
def test_command_lines_that_nobody_understands(arguments: list[str]) -> None:
    with pytest.raises(SettingsError):
        load(arguments, {})


def test_all_mistakes_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        made(found({"listen": "x", "default_count": -1, "log_level": "loud"}))
    assert len(caught.value.mistakes) == 3
