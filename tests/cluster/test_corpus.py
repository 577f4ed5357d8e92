"""Manifests from outside on a real Kubernetes, on the cards they were written for: what runs, what waits.

Those that are refused or left alone are in test_mutator.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster import corpus, vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.corpus import CARDS, LABEL
from tests.cluster.rack import TWO, Rack, create, held, limit, waiting

pytestmark = pytest.mark.cluster

ALIASES = {"resourceNames": {"count": "nvidia.com/gpu,nvidia.com/vgpu,nvidia.com/gpualloc"}}
RUN: dict[str, tuple[str, ...]] = {
    TWO: (
        *("001-default-use", "004-exclusive-two-cards", "005-percent-two-cards", "006-share-40-60"),
        *("008-deployment-mem-only-toleration", "011-nouse-gputype-list", "013-scheduler-policies"),
        *("014-nouse-uuid", "026-scoring-weights", "027-vulkan-annotation", "029-gputype-a10-also-a100"),
        *("030-mutex-policy", "032-gpumem-1k-two-gpus", "033-gpumem-5k", "050-gpumem-10-string"),
        *("051-percent-30-disable-control", "053-no-count-mem-and-cores", "054-only-gpumem-in-both"),
        *("057-gpumem-as-annotations", "058-mem-without-cores-20480", "061-pct-none-2000"),
        *("063-old-benchmark-job", "065-volcano-three-containers-nvidia-names"),
        *("066-regular-init-same-size", "068-sidecar-then-init-then-app", "069-three-inits-job"),
        *("076-host-pid", "078-restricted-scc-job", "079-hami-scheduler-name", "085-serving-runtime-kserve"),
        *("108-priority-env-pair", "109-force-core-policy", "113-job-annotation-on-metadata"),
        *("117-app-chart-no-count-23552", "092-dynamo-graph-vgpu", "125-vgpu-alias-exclusive"),
    ),
    "eight": (
        *("015-use-uuid-list-one-gpu", "021-numa-bind-two", "034-gpumem-81k-eight-vgpu"),
        *("035-pytorchjob-64k", "059-eight-gpus-cores-50-no-mem", "123-controller-made-worker-uuid"),
    ),
    "mixed": (
        *("017-gputype-product-double-prefix", "080-multidoc-deployments-services"),
        *("082-helm-rendered-serving-stack", "106-whole-card-mib-l40s"),
    ),
}  # fmt: skip
WAIT: dict[str, tuple[str, ...]] = {
    TWO: (
        *("015-use-uuid-list-one-gpu", "016-use-uuid-one-but-two-gpus", "017-gputype-product-double-prefix"),
        *("019-gputype-hyphenated-and-blacklist", "024-mig-binpack-uuid-hostname"),
        *("059-eight-gpus-cores-50-no-mem", "105-count-above-physical", "106-whole-card-mib-l40s"),
    ),
    "one": ("004-exclusive-two-cards", "121-nine-vgpus-one-card"),
    "eight": ("120-raycluster-ten-gpus",),
}


@pytest.fixture(scope="module")
def rack(installed_cluster: Cluster) -> Iterator[Rack]:
    """Counts have aliases here. Afterwards everything is as it was."""
    installed_cluster.install_chart(ALIASES)
    rack = Rack(installed_cluster)
    yield rack
    rack.holding(TWO)
    installed_cluster.install_chart()


def runs(cluster: Cluster, namespace: str, manifest: str) -> None:
    """Every Pod has its share, and no card gives more than it has."""
    pods = corpus.runnable(manifest)
    create(cluster, namespace, pods)
    vertical.running(cluster, namespace, LABEL, len(pods))
    assert {share.pod for share in vertical.shares(cluster, namespace)} == {
        pod["metadata"]["name"] for pod in pods
    }
    sizes = {card.device: card.memory for card in vertical.cards(cluster)}
    assert all(sum(memory) <= sizes[card] for card, memory in held(cluster, namespace).items())


def waits_and_says_why(cluster: Cluster, namespace: str, manifest: str) -> None:
    """The scheduler: that it can't allocate. Ours, at admission: what there is, and what is asked for."""
    pods = corpus.runnable(manifest)
    warnings = create(cluster, namespace, pods)
    assert "the Pod will wait" in warnings
    assert len(waiting(cluster, namespace, len(pods))) == len(pods)


@pytest.mark.parametrize("manifest", RUN[TWO])
def test_runs_on_two(two: Cluster, namespace: str, manifest: str) -> None:
    runs(two, namespace, manifest)


@pytest.mark.parametrize("manifest", WAIT[TWO])
def test_waits_on_two(two: Cluster, namespace: str, manifest: str) -> None:
    waits_and_says_why(two, namespace, manifest)


def test_containers_keep_claims_of_their_own(two: Cluster, namespace: str) -> None:
    """M097: one container's claim is somebody's, the other's is ours."""
    request = {"deviceClassName": vertical.DRIVER, "capacity": {"requests": {"memory": "3000Mi"}}}
    own = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "multi-0"},
        "spec": {"devices": {"requests": [{"name": "card", "exactly": request}]}},
    }
    create(two, namespace, [own, *corpus.runnable("097-native-claim-plus-legacy-keys")])
    vertical.running(two, namespace, LABEL, 1)
    assert [limit(two, namespace, container) for container in "ab"] == [3000, 2000]


def test_other_schedulers_pods_keep_their_scheduler(two: Cluster, namespace: str) -> None:
    """M087 is converted, and left to Volcano."""
    (pod,) = corpus.runnable("087-trainjob-gpualloc-alias")
    pod["spec"]["schedulerName"] = "volcano"
    create(two, namespace, [pod])
    (found,) = vertical.get(two, "pods", "-n", namespace)["items"]
    assert found["spec"]["schedulerName"] == "volcano"
    assert found["spec"]["containers"][0]["resources"].keys() == {"claims"}


@pytest.mark.parametrize(
    "manifest", ["099-quota-limits-prefix", "100-quota-requests-prefix"], ids=["099", "100"]
)
def test_quotas(two: Cluster, namespace: str, manifest: str) -> None:
    """One of the two Pods comes in, as without the conversion."""
    quota = corpus.documents(manifest)[0]
    create(two, namespace, [quota])
    name = quota["metadata"]["name"]
    vertical.wait_until(
        "the quota's status",
        lambda: vertical.get(two, "resourcequota", name, "-n", namespace).get("status", {}).get("hard"),
    )
    first, second = corpus.runnable(manifest)
    fits, does_not = (first, second) if manifest.startswith("099") else (second, first)
    create(two, namespace, [fits])
    with pytest.raises(CommandError, match=rf"exceeded quota: {name}, requested: "):
        create(two, namespace, [does_not])
    assert len(vertical.running(two, namespace, LABEL, 1)) == 1


def test_a_queued_job_is_as_its_author_wrote_it(two: Cluster, namespace: str) -> None:
    """M101: Kueue counts what the suspended Job's template says; what is converted are its Pods."""
    job = corpus.documents("101-kueue-suspended-job")[-1]
    template = job["spec"]["template"]["spec"]
    corpus.make_runnable(template)
    asked = {key: str(value) for key, value in template["containers"][0]["resources"]["limits"].items()}
    create(two, namespace, [job])
    stored = vertical.get(two, "job", "kueue-101", "-n", namespace)
    (container,) = stored["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == asked
    assert not vertical.get(two, "resourceclaimtemplates", "-n", namespace)["items"]
    patch = json.dumps({"spec": {"suspend": False}})
    two.kubectl("patch", "job", "kueue-101", "-n", namespace, "--type=merge", "-p", patch)
    vertical.running(two, namespace, "job-name=kueue-101", 1)
    (share,) = vertical.shares(two, namespace)
    assert (share.memory, share.cores) == (4096, 50)
    assert (
        vertical.get(two, "job", "kueue-101", "-n", namespace)["spec"]["template"]
        == (stored["spec"]["template"])
    )


@pytest.mark.parametrize("manifest", WAIT["one"])
def test_waits_on_one(one: Cluster, namespace: str, manifest: str) -> None:
    waits_and_says_why(one, namespace, manifest)


@pytest.mark.parametrize(
    ("manifest", "ends", "late"),
    [
        pytest.param("003-two-plain-pods-multidoc", ["p-0"], "p-1", id="003: alone on the card"),
        pytest.param("114-cores-100-two-pods-16000", ["p-0"], "p-1", id="114: all of its compute"),
        pytest.param("104-third-slice-does-not-fit", ["p-0", "p-1"], "p-2", id="104: its memory"),
    ],
)
def test_the_last_one_waits_for_the_others(
    *, one: Cluster, namespace: str, manifest: str, ends: list[str], late: str
) -> None:
    """And then starts by itself."""
    *pods, last = corpus.runnable(manifest)
    create(one, namespace, pods)
    vertical.running(one, namespace, LABEL, len(pods))
    create(one, namespace, [last])
    assert waiting(one, namespace, 1) == [late]
    one.kubectl("delete", "pods", "-n", namespace, *ends)
    assert vertical.running(one, namespace, LABEL, 1) == [late]


def test_40_and_60_percent_fill_a_card(one: Cluster, namespace: str) -> None:
    """Of a memory that neither divides: M006."""
    create(one, namespace, corpus.runnable("006-share-40-60"))
    vertical.running(one, namespace, LABEL, 2)
    (memory,) = held(one, namespace).values()
    total = CARDS["one"][0].memory
    assert sorted(memory) == [total * 40 // 100, total * 60 // 100]


@pytest.mark.parametrize("manifest", RUN["eight"])
def test_runs_on_eight(eight: Cluster, namespace: str, manifest: str) -> None:
    runs(eight, namespace, manifest)


@pytest.mark.parametrize("manifest", WAIT["eight"])
def test_waits_on_eight(eight: Cluster, namespace: str, manifest: str) -> None:
    waits_and_says_why(eight, namespace, manifest)


def test_sixteen_replicas_are_two_on_each_card(eight: Cluster, namespace: str) -> None:
    """M116, as a Deployment."""
    (deployment,) = corpus.documents("116-sixteen-replicas-eight-cards")
    corpus.make_runnable(deployment["spec"]["template"]["spec"])
    create(eight, namespace, [deployment])
    vertical.running(eight, namespace, "app=pack-116", 16)
    assert sorted(map(len, held(eight, namespace).values())) == [2] * 8
    eight.kubectl("scale", "deployment/pack-116", "-n", namespace, "--replicas=17")
    assert len(waiting(eight, namespace, 1)) == 1


def test_tenants_share_the_card_that_they_name(eight: Cluster, namespace: str) -> None:
    """M126: the third is too large for it."""
    pods = corpus.runnable("126-tenant-pinned-small")
    warnings = create(eight, namespace, pods)
    assert (
        "nvidia.com/gpumem 90000 is more than any card that its annotations leave has now (81920)" in warnings
    )
    vertical.running(eight, namespace, LABEL, 2)
    assert waiting(eight, namespace, 1) == ["p-2"]
    assert held(eight, namespace) == {f"gpu-{corpus.uuid(7)[4:]}": [2000, 2000]}


@pytest.mark.parametrize(
    ("manifest", "copies"),
    [("056-kserve-no-count-cpu-sidecar", 10), ("118-pod-group-label-hami", 4)],
    ids=["056: ten services", "118: a gang of four"],
)
def test_many_at_one_moment(*, eight: Cluster, namespace: str, manifest: str, copies: int) -> None:
    """Each has a share of its own; and whoever asks for none sees no card."""
    (pod,) = corpus.runnable(manifest)
    create(
        eight, namespace, [pod | {"metadata": pod["metadata"] | {"name": f"p-{n}"}} for n in range(copies)]
    )
    names = vertical.running(eight, namespace, LABEL, copies)
    owners = Counter(share.pod for share in vertical.shares(eight, namespace))
    assert owners == dict.fromkeys(names, 1)
    assert all(sum(memory) <= 81920 for memory in held(eight, namespace).values())
    for container in [each["name"] for each in pod["spec"]["containers"]][1:]:
        seen = eight.kubectl("exec", "-n", namespace, names[0], "-c", container, "--", "ls", "/dev")
        assert "nvidia" not in seen


def test_visible_devices_choose_among_ones_own(eight: Cluster, namespace: str) -> None:
    """M111: CUDA_VISIBLE_DEVICES=1 is the second of two, NVIDIA_VISIBLE_DEVICES=all no more than two."""
    (pod,) = corpus.runnable("111-user-sets-visible-devices")
    create(eight, namespace, [pod])
    vertical.running(eight, namespace, LABEL, 1)
    seen = vertical.execute(eight, namespace, "p-0", "nvidia-smi", "-L").splitlines()
    assert len(seen) == 2
    found = vertical.allocate(eight, namespace, "p-0")
    assert found.held == found.total == 6000 * vertical.MEBIBYTE


@pytest.mark.parametrize("manifest", RUN["mixed"])
def test_runs_on_mixed(mixed: Cluster, namespace: str, manifest: str) -> None:
    runs(mixed, namespace, manifest)


def test_45_percent_fit_twice_on_a_card(mixed: Cluster, namespace: str) -> None:
    """M080, whose type there is one card of."""
    pod = corpus.runnable("080-multidoc-deployments-services")[0]
    copies = [pod | {"metadata": pod["metadata"] | {"name": f"p-{number}"}} for number in range(3)]
    create(mixed, namespace, copies)
    vertical.running(mixed, namespace, LABEL, 2)
    assert len(waiting(mixed, namespace, 1)) == 1
    assert list(held(mixed, namespace).values()) == [[23028 * 45 // 100] * 2]


@pytest.mark.parametrize(
    ("manifest", "memory"),
    [("024-mig-binpack-uuid-hostname", 9728), ("025-mig-profile-preference", 40192)],
    ids=["024", "025"],
)
def test_the_smallest_instance_that_has_the_memory(
    *, instances: Cluster, namespace: str, manifest: str, memory: int
) -> None:
    create(instances, namespace, corpus.runnable(manifest))
    vertical.running(instances, namespace, LABEL, 1)
    assert list(held(instances, namespace).values()) == [[memory]]
