"""Addresses of a cluster. They exist in its network namespaces only, so every cluster has the same."""

from __future__ import annotations

from tests.cluster.namespaces import Namespaces

API_PORT = 6443
SERVICES = "10.96.0.0/16"
SERVICE_API = "10.96.0.1"
PODS = "10.88.0.0/16"
SWITCH = "10.99.0.254"
MAX_NODES = 8


def address(node: int) -> str:
    """The node's own address on the cluster's switch."""
    return f"10.99.0.{node + 1}"


def pod_subnet(node: int) -> str:
    return f"10.88.{node}.0/24"


def make_switch(cluster: Namespaces) -> None:
    """A bridge that joins the nodes, and the end of their default route: what leaves the cluster is refused
    at once.
    """
    cluster.ip(
        "link set lo up",
        "link add switch type bridge",
        f"addr add {SWITCH}/24 dev switch",
        "link set switch up",
        "route add unreachable default",
    )


def plug_in(cluster: Namespaces, node: Namespaces, index: int) -> None:
    """Joins a node's network namespace to the switch by a veth pair."""
    cluster.ip(
        f"link add port{index} type veth peer name eth0 netns {node.pid}",
        f"link set port{index} master switch up",
    )
    node.ip(
        "link set lo up",
        f"addr add {address(index)}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {SWITCH}",
        *(
            f"route add {pod_subnet(other)} via {address(other)}"
            for other in range(MAX_NODES)
            if other != index
        ),
    )
