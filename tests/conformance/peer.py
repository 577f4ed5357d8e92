"""Where dra-example-driver (31914ce) is known to fail, and why: proof that these tests can."""

from __future__ import annotations

from tests.conformance.drivers import Expected

EXPECTED_FAILURES = {
    "test_a_claim_of_another_driver_alone": Expected(
        "it writes a CDI document for a claim without devices of its own, which the specification forbids"
    ),
    "test_a_new_stream_after_a_restart": Expected("it has no health service"),
    "test_after_a_reboot": Expected("it answers from its checkpoint, though the reboot took its document"),
    "test_changed_by_somebody_is_put_right": Expected("the Go helper looks at slices 30 s after an event"),
    "test_deleted_by_the_kubelet_comes_back": Expected("the Go helper looks at slices 30 s after an event"),
    "test_every_claim_is_answered_and_a_bad_one_holds_up_no_other": Expected(
        "the Go helper fails the whole call where one claim can't be read"
    ),
    "test_killed_in_the_middle_of_its_work": Expected(
        "it removes a CDI document before it says so in its checkpoint, and then answers from that",
        always=False,
    ),
    "test_lost_cdi_comes_back": Expected("it answers from its checkpoint and writes nothing again"),
    "test_the_first_message_has_every_device": Expected("it has no health service"),
}
