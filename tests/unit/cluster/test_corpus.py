"""No manifest from outside is forgotten on the clusters; and cards that the fake driver can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import corpus
from tests.fakegpu.inventory import read_inventory

TESTS = Path(corpus.__file__).parent


def test_every_manifest_is_shown_on_a_cluster() -> None:
    text = "".join(path.read_text() for path in TESTS.glob("test_*.py"))
    assert not [path.stem for path in corpus.MANIFESTS.iterdir() if f'"{path.stem}"' not in text]


@pytest.mark.parametrize("cards", corpus.CARDS)
def test_cards(cards: str, tmp_path: Path) -> None:
    file = tmp_path / "cards.ini"
    file.write_text(corpus.inventory(corpus.CARDS[cards]))
    found = read_inventory(file).cards
    assert [(card.name, card.uuid, card.numa_node, len(card.instances)) for card in found] == [
        (card.product, card.uuid, card.numa, len(card.instances)) for card in corpus.CARDS[cards]
    ]
    assert len({card.pci for card in found}) == len(found)


def test_runnable_pods_keep_what_they_ask_for() -> None:
    (pod,) = corpus.runnable("111-user-sets-visible-devices")
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 6000}}
    assert [variable["name"] for variable in container["env"]] == [
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
    ]
