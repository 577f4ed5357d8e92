"""dra_driver/CLAIMS.md names what the code knows, and its example is understood."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from dra_driver import main
from dra_driver.cards.capacity import Scales
from dra_driver.cards.inventory import inventory
from dra_driver.cards.rules import Interposition, MemoryOverflow
from dra_driver.claims import share_config
from dra_driver.claims.share_config import ShareConfig
from dra_driver.slices.documents import device_lists
from tests.unit.dra_driver.cards import A100, RTX_4090, instance

PAGE = Path(main.__file__).with_name("CLAIMS.md")
RENDERED = PAGE.parents[1] / "tests/cluster/golden/chart-renamed.yaml"
"""The chart with all its classes."""


def example() -> Any:
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])["spec"]["devices"]


def test_the_example_sets_every_field_and_is_understood() -> None:
    (config,) = example()["config"]
    parameters = config["opaque"]["parameters"]
    read = share_config.read(parameters, "spec")
    defaults = ShareConfig()
    assert parameters.keys() - {"apiVersion", "kind"} == set(share_config.FIELDS)
    assert all(getattr(read, field.name) != getattr(defaults, field.name) for field in fields(read))


def test_every_field_and_value_is_described() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*)$", PAGE.read_text().partition("## ShareConfig")[2], re.M))
    assert set(rows) == set(share_config.FIELDS)
    for kind, row in (
        (share_config.Enforcement, rows["enforcement"]),
        (share_config.CorePolicy, rows["corePolicy"]),
        (Interposition, rows["interposition"]),
        (MemoryOverflow, rows["memoryOverflow"]),
    ):
        assert [each.value for each in kind if f"`{each.value}`" not in row] == []


def test_what_a_card_publishes_is_described() -> None:
    joined = replace(RTX_4090, nvlink_peers=(A100.pci_bus_id,))
    (devices,) = device_lists(inventory("570.124.06", "12.8.0", (joined, A100, instance(1, 10))), Scales())
    published = {name for device in devices for kind in ("attributes", "capacity") for name in device[kind]}
    assert {"nvlinkDomain", "profile", "memory"} < published
    described = set(re.findall(r"`(?:[a-z.]+/)?(\w+)`", PAGE.read_text()))
    assert {name.rpartition("/")[2] for name in published} - described == set()


def test_every_class_of_the_chart_is_described() -> None:
    documents = yaml.safe_load_all(RENDERED.read_text())
    classes = [each["metadata"]["name"] for each in documents if each["kind"] == "DeviceClass"]
    assert len(classes) == 5
    assert [name for name in classes if f"| `{name}` |" not in PAGE.read_text()] == []
