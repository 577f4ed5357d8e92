/* SPDX-License-Identifier: Apache-2.0 */
#include "estimates.h"

#include "check.h"

static int kernel, other;

static void test_keys(void) {
  CHECK(estimate_of(&kernel, 1000) == estimate_of(&kernel, 1010));
  CHECK(estimate_of(&kernel, 1000) != estimate_of(&kernel, 2000));
  CHECK(estimate_of(&kernel, 1) != estimate_of(&kernel, 2));
  CHECK(estimate_of(&kernel, 1000) != estimate_of(&other, 1000));
  CHECK(estimate_of(NULL, UINT64_MAX) != NULL);
}

static void test_a_full_table_still_answers(void) {
  for (uintptr_t i = 1; i < 100000; i++) CHECK(estimate_of((void *)(i * 64), 1) != NULL);
  estimates_reset();
}

static void test_long_kernels_are_all_timed_and_short_ones_now_and_then(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  CHECK_EQUAL(estimate_launch(estimate, 0), 1); /* unknown: timed */
  estimate_settle(estimate, 1000000, false, 0, 1);
  for (int i = 0; i < 10; i++) {
    CHECK(!estimate_is_paid(estimate));
    CHECK_EQUAL(estimate_launch(estimate, 0), 1);
  }
  estimate->ns = 10000;
  uint32_t least = 1000, most = 0, all = 0;
  for (int i = 0; i < 1000; i++) {
    CHECK(!estimate_is_paid(estimate));
    uint32_t launches = estimate_launch(estimate, 0);
    for (uint32_t paid = 1; paid < launches; paid++) CHECK(estimate_is_paid(estimate));
    if (launches < least) least = launches;
    if (launches > most) most = launches;
    all += launches;
  }
  CHECK_EQUAL(least, 10);
  CHECK_EQUAL(most, 29);
  CHECK(all > 19000 && all < 21000);
  estimates_reset();
}

static void test_the_first_run_is_charged_afterwards(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  CHECK_EQUAL(estimate_settle(estimate, 5000, false, 0, 1), 5000);
  CHECK_EQUAL(estimate_settle(estimate, 5000, false, 5000, 1), 0);
  CHECK_EQUAL(estimate_settle(estimate, 5000, false, 0, 7), 7 * 5000); /* launched before it was known */
  estimates_reset();
}

static void test_a_short_one_stands_for_many(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  estimate_settle(estimate, 16000, false, 0, 1);
  CHECK_EQUAL(estimate_settle(estimate, 32000, false, 16000, 10), 10 * 16000);
  CHECK_EQUAL(estimate_settle(estimate, 17000, true, 17000, 10), 0);
  CHECK(estimate->ns > 16000 && estimate->ns < 18000);
  CHECK_EQUAL(estimate_launch(estimate, 0) > 5, 1);
  estimates_reset();
}

static void test_one_that_is_not_short_any_more_stands_for_itself(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  estimate_settle(estimate, 16000, false, 0, 1);
  CHECK_EQUAL(estimate_settle(estimate, 2016000, false, 16000, 10), 2000000);
  CHECK(estimate_launch(estimate, 0) == 1); /* the next are timed, each */
  for (int i = 0; i < 12; i++) CHECK_EQUAL(estimate_settle(estimate, 16000, false, 16000, 1), 0);
  CHECK(estimate_launch(estimate, 0) > 1);
  estimate->ns = 16000;
  CHECK_EQUAL(estimate_settle(estimate, 2016000, true, 15000, 10), 0); /* others' turns, it may be */
  CHECK(estimate_launch(estimate, 0) == 1);
  estimates_reset();
}

static void test_only_one_in_a_row_seems_cut(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  CHECK(!estimate_seems_cut(estimate, 16000, 16000));
  CHECK(estimate_seems_cut(estimate, 2016000, 16000));
  CHECK(!estimate_seems_cut(estimate, 16000, 16000));
  CHECK(estimate_seems_cut(estimate, 2016000, 16000));
  CHECK(!estimate_seems_cut(estimate, 2016000, 16000));
  CHECK(!estimate_seems_cut(estimate, 2016000, 2016000)); /* as long as expected */
  CHECK(!estimate_seems_cut(estimate, 190000, 16000));    /* short enough to stand for others */
  estimates_reset();
}

static void test_long_ones_are_charged_what_they_took(void) {
  static const uint64_t took[] = {1000000, 10000000, 400000, 7000000, 90000000, 1000000};
  struct estimate *estimate = estimate_of(&kernel, 1);
  int64_t charged = 0, due = 0;
  for (int round = 0; round < 100; round++)
    for (unsigned int i = 0; i < sizeof took / sizeof *took; i++) {
      uint64_t debited = estimate->ns;
      charged += (int64_t)debited + estimate_settle(estimate, took[i], true, debited, 1);
      due += (int64_t)took[i];
      CHECK_EQUAL(estimate_launch(estimate, 0), 1);
    }
  CHECK_EQUAL(charged, due);
  estimates_reset();
}

/* Some twenty would be 0.2 ms of work, but they took longer. */
static void test_those_that_come_slowly_are_timed_more_often(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  estimate->ns = 10000;
  uint32_t first = estimate_launch(estimate, 1000000000);
  CHECK(first >= 10);
  CHECK(estimate_launch(estimate, 1000000000 + 100000) >= 10); /* as quick as it can be */
  uint32_t second = estimate->group;
  CHECK_EQUAL(estimate_launch(estimate, 1000100000 + 1000000), second / 5);
  CHECK_EQUAL(estimate_launch(estimate, 1001100000 + 100000000), 1);
  estimates_reset();
}

int main(void) {
  test_keys();
  test_a_full_table_still_answers();
  test_long_kernels_are_all_timed_and_short_ones_now_and_then();
  test_the_first_run_is_charged_afterwards();
  test_a_short_one_stands_for_many();
  test_one_that_is_not_short_any_more_stands_for_itself();
  test_those_that_come_slowly_are_timed_more_often();
  test_only_one_in_a_row_seems_cut();
  test_long_ones_are_charged_what_they_took();
  puts("estimates: ok");
}
