from __future__ import annotations

import logging
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Rules
from dra_driver.conditions import Condition, Conditions
from dra_driver.configuration.node_configuration_file import NodeConfigurationFile
from dra_driver.errors import RetryableError
from dra_driver.node import Node
from kube.errors import ApiError
from tests.unit.dra_driver.cards import two_cards

HEAD = "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfiguration\n"
BY_LABEL = HEAD + "overrides: [{nodes: {labelSelector: {matchLabels: {pool: big}}}, splitCount: 3}]\n"
FORBIDDEN = ApiError(403, "Forbidden", "nodes is forbidden")


class Setting:
    """A ConfigMap as the kubelet mounts it, and what reads it. `labels` None: there is no answer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "node.yaml"
        self.path.symlink_to("..data/node.yaml")
        self.labels: Mapping[str, str] | None = {}
        self.asked = 0
        self.now = 0.0
        self.loaded: list[bool] = []
        self.conditions = Conditions()
        self.node = Node("node-a", Rules(), why_no_rules="not read yet")
        self.node.found(two_cards())
        self.file = NodeConfigurationFile(
            path=self.path,
            node=self.node,
            defaults=Rules(Scales(7)),
            labels=self._labels,
            conditions=self.conditions,
            loaded=self.loaded.append,
            clock=lambda: self.now,
        )

    async def _labels(self) -> Mapping[str, str]:
        self.asked += 1
        if self.labels is None:
            raise FORBIDDEN
        return self.labels

    def write(self, text: str) -> None:
        """A new directory, then the link that leads to it is swapped."""
        directory = self.root / f"..{len(list(self.root.iterdir()))}"
        directory.mkdir()
        (directory / "node.yaml").write_text(text)
        link = self.root / "..data_tmp"
        link.symlink_to(directory.name)
        link.rename(self.root / "..data")

    @property
    def detail(self) -> tuple[bool, str]:
        state = self.conditions[Condition.CONFIGURATION]
        return state.holds, state.detail.replace(str(self.path), "FILE")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_holds_from_the_start(setting: Setting) -> None:
    setting.write(HEAD + "memoryScaling: 1.5\n")
    setting.file.start()
    assert setting.node.scales == Scales(7, Fraction("1.5"))
    assert setting.detail == (True, "FILE holds")
    assert setting.node.why_no_rules is None


@pytest.mark.parametrize("text", [None, "kind: x", HEAD + "splitCount: 0"], ids=["no-file", "kind", "value"])
async def test_nothing_is_given_out_until_the_first_file_can_be_used(
    setting: Setting, text: str | None
) -> None:
    if text is not None:
        setting.write(text)
    setting.file.start()
    holds, why = setting.detail
    assert not holds
    assert why.startswith("FILE: ")
    assert why.endswith("; until it can be used nothing is published or prepared here")
    with pytest.raises(RetryableError, match=r"node node-a is not configured yet: .*node\.yaml: "):
        setting.node.inventory()

    setting.write(HEAD + "splitCount: 3")
    await setting.file.look()
    assert setting.detail == (True, "FILE holds")
    assert setting.node.scales == Scales(3)
    assert setting.loaded == [False, True]


async def test_a_change_holds_at_once_and_the_same_again_is_none(setting: Setting) -> None:
    setting.write(HEAD)
    setting.file.start()
    setting.write(HEAD + "splitCount: 3\n")
    await setting.file.look()
    setting.write(HEAD + "splitCount: 3\n")
    await setting.file.look()
    assert setting.node.scales.split_count == 3
    assert setting.loaded == [True, True]


async def test_a_file_that_became_wrong_changes_nothing_and_is_told(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.write(HEAD + "splitCount: 3\n")
    setting.file.start()
    for text in (HEAD + "splitCount: 0\n", HEAD + "splitCount: 0\n"):
        setting.write(text)
        with caplog.at_level(logging.WARNING):
            await setting.file.look()
    assert setting.node.scales.split_count == 3
    told = "FILE: splitCount: can't be 0: write a whole number from 1 to 1000, such as 10"
    assert setting.detail == (False, f"{told}; what held before still holds")
    assert setting.loaded == [True, False]
    assert len(caplog.messages) == 1
    setting.write(HEAD + "splitCount: 3\n")
    await setting.file.look()
    assert setting.detail == (True, "FILE holds")


async def test_a_file_that_is_gone_changes_nothing_and_may_come_back(setting: Setting) -> None:
    setting.write(HEAD + "splitCount: 3\n")
    setting.file.start()
    (setting.root / "..data").unlink()
    for _ in range(3):
        await setting.file.look()
    assert setting.node.scales.split_count == 3
    assert setting.detail == (
        False,
        "FILE: can't be read: No such file or directory; what held before still holds",
    )
    assert setting.loaded == [True, False]
    setting.write(HEAD + "splitCount: 3\n")
    await setting.file.look()
    assert setting.detail == (True, "FILE holds")


async def test_labels_are_waited_for(setting: Setting) -> None:
    setting.labels = None
    setting.write(BY_LABEL)
    setting.file.start()
    await setting.file.look()
    assert setting.node.why_no_rules is not None
    with pytest.raises(RetryableError, match="node node-a is not configured yet"):
        setting.node.inventory()
    assert setting.detail == (
        False,
        f"the labels of Node node-a can't be read, and FILE needs them: {FORBIDDEN}",
    )
    setting.labels = {"pool": "big"}
    await setting.file.look()
    assert setting.node.scales.split_count == 3
    assert setting.detail == (True, "FILE holds, with overrides[0]")
    assert setting.node.inventory() == two_cards()


async def test_labels_are_read_now_and_then_and_old_ones_are_kept(setting: Setting) -> None:
    setting.labels = {"pool": "big"}
    setting.write(BY_LABEL)
    setting.file.start()
    for now, labels, split in (
        (0.0, {"pool": "big"}, 3),
        (29.0, {}, 3),
        (31.0, None, 3),
        (32.0, {}, 7),
    ):
        setting.now, setting.labels = now, labels
        await setting.file.look()
        assert setting.node.scales.split_count == split
    assert setting.asked == 3


async def test_labels_are_not_asked_for_where_nothing_needs_them(setting: Setting) -> None:
    setting.write(HEAD + "overrides: [{nodes: {name: node-a}, splitCount: 3}]\n")
    setting.file.start()
    await setting.file.look()
    assert (setting.node.scales.split_count, setting.asked) == (3, 0)
