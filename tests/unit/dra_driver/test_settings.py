from __future__ import annotations

import contextlib
import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Interposition, Rules
from dra_driver.configuration.settings import Settings, load
from kube.settings import SettingsError, fields, sources


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TESSERA_")]:
        monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = load(["--node-name", "a"])
    assert settings.rules == Rules(Scales(10, Fraction(1), Fraction(1)))
    assert settings.sockets.dra == Path("/var/lib/kubelet/plugins/gpu.tessera.dev/dra.sock")
    assert settings.sockets.registration == Path("/var/lib/kubelet/plugins_registry/gpu.tessera.dev-reg.sock")
    assert settings.http_address == "[::]:9470"
    assert settings.container_driver_root == Path("/driver-root")


def test_a_pods_sockets() -> None:
    sockets = load(["--node-name", "a", "--pod-uid", "0c8f1f2e-0000"]).sockets
    assert sockets.dra == Path("/var/lib/kubelet/plugins/gpu.tessera.dev/dra-0c8f1f2e-0000.sock")
    assert sockets.registration.name == "gpu.tessera.dev-0c8f1f2e-0000-reg.sock"


def test_a_flag_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NODE_NAME", "from-environment")
    monkeypatch.setenv("TESSERA_SPLIT_COUNT", "4")
    settings = load(["--split-count", "5"])
    assert (settings.node_name, settings.split_count) == ("from-environment", 5)


def test_scaling_is_exact() -> None:
    settings = load(["--node-name", "a", "--memory-scaling", "1.1"])
    assert settings.rules.scales.memory_scaling == Fraction(11, 10)


def test_an_ipv6_address() -> None:
    assert load(["--node-name", "a", "--http-address", "[::1]:9470"]).http_address == "[::1]:9470"


def test_all_mistakes_of_all_sources_at_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("lookPeriod: never\nsplitcount: 4\n")
    with pytest.raises(SettingsError) as caught:
        load(
            ["--settings", str(file), "--split-count", "0", "--run-dir=relative", "--pod-uuid", "a", "more"],
            {"TESSERA_CORE_SCALING": "x"},
        )
    assert str(caught.value).splitlines() == [
        "there is no flag --pod-uuid; is --pod-uid meant?",
        "there is no argument a",
        "there is no argument more",
        f"settings file {file}: there is no key splitcount; is splitCount meant?",
        "--node-name must be given (or TESSERA_NODE_NAME, or nodeName)",
        "--run-dir can't be 'relative': the path must be absolute, since others use it too",
        "--split-count can't be '0': write a whole number from 1 to 1000",
        "TESSERA_CORE_SCALING can't be 'x': write a number from 0.01 to 100",
        f"settings file {file}: lookPeriod can't be 'never': write a number from 0.1 to 3600",
    ]


def test_flag_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "nodeName: file\nlogLevel: error\nsplitCount: 3\ncoreScaling: 1.1\nlegacyMetrics: true\npodUid:\n"
    )
    settings = load(
        ["--split-count", "5"],
        {"TESSERA_SETTINGS": str(file), "TESSERA_LOG_LEVEL": "debug", "TESSERA_SPLIT_COUNT": "4"},
    )
    assert (settings.split_count, settings.log_level, settings.node_name) == (5, "debug", "file")
    assert settings.rules.scales.core_scaling == Fraction(11, 10)
    assert settings.legacy_metrics
    assert (settings.pod_uid, settings.look_period) == (None, 30)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "settings file .* can't be read: .*No such file", id="not there"),
        pytest.param(b"a: [", "settings file .* is not YAML: ", id="not YAML"),
        pytest.param(b"\xff\xfe\x00", "settings file .* (is not YAML|can't be read): ", id="not text"),
        pytest.param(b"- splitCount\n", "settings file .* must be a mapping", id="a list"),
        pytest.param(b"splitCount: {a: 1}\n", "settings file .*: splitCount can't be", id="wrong type"),
        pytest.param(b"splitCount: 1\nsplitCount: 2\n", "'splitCount' is there twice", id="twice"),
        pytest.param(b"split_count: 1\n", "no key split_count; is splitCount meant", id="other spelling"),
        pytest.param(b"3: 1\n", "no key 3", id="a number for a key"),
    ],
)
def test_a_file_that_cant_be_used(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=message):
        load(["--node-name", "a", "--settings", str(file)], {})


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("# nothing\n")
    assert load(["--node-name", "a", "--settings", str(file)], {}) == load(["--node-name", "a"], {})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--legacy-metrics"], True, id="alone"),
        pytest.param(["--legacy-metrics", "--split-count", "2"], True, id="before a flag"),
        pytest.param(["--legacy-metrics=false"], False, id="equals"),
        pytest.param(["--legacy-metrics", "true"], True, id="with a value"),
        pytest.param(["--legacy-metrics", "--legacy-metrics=no"], False, id="the last one holds"),
    ],
)
def test_a_switch(arguments: list[str], expected: bool) -> None:
    assert load(["--node-name", "a", *arguments], {}).legacy_metrics is expected


def test_interposition_is_a_rule() -> None:
    assert load(["--node-name", "a"], {}).rules.interposition is Interposition.PRELOAD
    assert load(["--node-name", "a", "--interposition", "shim"], {}).rules.interposition is Interposition.SHIM
    with pytest.raises(SettingsError, match="can't be 'hook': write preload or shim"):
        load(["--node-name", "a"], {"TESSERA_INTERPOSITION": "hook"})


def test_a_flag_without_its_value() -> None:
    with pytest.raises(SettingsError, match=r"^argument --split-count: expected one argument$"):
        load(["--split-count", "--node-name", "a"], {})


def test_a_part_of_a_flags_name_is_not_that_flag() -> None:
    with pytest.raises(SettingsError, match=r"^there is no flag --split; is --split-count meant\?$"):
        load(["--node-name", "a", "--split=3"], {})


def test_unknown_variables_are_told() -> None:
    names = [
        "TESSERA_SPLIT_COUNTS",
        "TESSERA_NODE_NAME",
        "TESSERA_SETTINGS",
        "TESSERA_MUTATOR_SERVICE_HOST",
        "TESSERA_MUTATOR_PORT_443_TCP_ADDR",
        "TESSERA_MUTATOR_SERVICE_PORT_HTTPS",
        "PATH",
    ]
    assert sources.unknown_variables(names, fields(Settings)) == [
        "environment variable TESSERA_SPLIT_COUNTS is ignored: it is no setting;"
        " is TESSERA_SPLIT_COUNT meant?"
    ]


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load(["--help"], {})
    said = capsys.readouterr().out
    assert caught.value.code == 0
    assert all(f"  {sources.flag(field.name)} " in said for field in fields(Settings))


@given(
    st.lists(st.one_of(st.sampled_from([sources.flag(field.name) for field in fields(Settings)]), st.text())),
    st.dictionaries(st.sampled_from([sources.variable(field.name) for field in fields(Settings)]), st.text()),
)
def test_nothing_given_breaks_it(arguments: list[str], environment: dict[str, str]) -> None:
    """Settings, or sentences; never another error."""
    with contextlib.suppress(SettingsError):
        load([one for one in arguments if not one.startswith(("-h", "--help"))], environment)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        pytest.param("--http-address", "9470", "write ADDRESS:PORT", id="no-address"),
        pytest.param("--http-address", "localhost:9470", "write ADDRESS:PORT", id="name"),
        pytest.param("--http-address", "0.0.0.0:99999", "write ADDRESS:PORT", id="port"),
        pytest.param("--memory-scaling", "0", "write a number from 0.01 to 100", id="no-memory"),
        pytest.param("--memory-scaling", "1e999999999", "write a number", id="enormous"),
        pytest.param("--memory-scaling", "NaN", "can.t be .NaN.", id="nan"),
        pytest.param("--memory-scaling", "Infinity", "can.t be .Infinity.", id="infinity"),
        pytest.param("--split-count", "1001", "write a whole number from 1 to 1000", id="split"),
        pytest.param("--kubelet-root", "/" + "a" * 90, "has 1.. bytes; Linux allows 107", id="socket-path"),
        pytest.param("--pod-uid", "a/b", "write a Pod's UID", id="pod-uid"),
        pytest.param("--pod-uid", "", "write a Pod's UID", id="no-pod-uid"),
        pytest.param("--node-name", "", "write the name of a Node object", id="empty"),
    ],
)
def test_refused(flag: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(["--node-name", "a", flag, value])
