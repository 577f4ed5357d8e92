"""Cards and inventories that the tests share."""

from __future__ import annotations

from dataclasses import replace

from dra_driver.cards.inventory import Card, Inventory, Mig, inventory

GIB = 1 << 30

RTX_4090 = Card(
    uuid="GPU-6f1e5d3a-0001-4c3b-9a55-2b7f0e9d4090",
    minor=0,
    memory_bytes=24 * GIB,
    pci_bus_id="0000:01:00.0",
    product_name="NVIDIA GeForce RTX 4090",
    brand="GeForce",
    architecture="Ada Lovelace",
    compute_capability="8.9",
    pcie_root="pci0000:00",
    numa_node=0,
)
A100 = Card(
    uuid="GPU-6f1e5d3a-0002-4c3b-9a55-2b7f0e9da100",
    minor=1,
    memory_bytes=80 * GIB,
    pci_bus_id="0000:81:00.0",
    product_name="NVIDIA A100-SXM4-80GB",
    brand="Nvidia",
    architecture="Ampere",
    compute_capability="8.0",
    pcie_root="pci0000:80",
    numa_node=1,
)


def many(count: int) -> tuple[Card, ...]:
    """Equal cards but for identity and place."""
    return tuple(
        Card(
            uuid=f"GPU-00000000-0000-4000-8000-{number:012x}",
            minor=number,
            memory_bytes=16 * GIB,
            pci_bus_id=f"0000:{number:02x}:00.0",
            product_name="Tesla T4",
        )
        for number in range(count)
    )


def two_cards() -> Inventory:
    return inventory("570.124.06", "12.8.0", [A100, RTX_4090])


def instance(number: int, gib: int, *, profile: str = "1g.10gb", sharers: int = 1) -> Card:
    """A MIG instance of the A100, by the number of its GPU instance."""
    return replace(
        A100,
        uuid=f"MIG-00000000-0000-5000-8000-{number:012x}",
        memory_bytes=gib * GIB,
        mig=Mig(A100.uuid, number, 0, profile, sharers),
    )
