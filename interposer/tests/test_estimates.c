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
  CHECK_EQUAL(estimate_launch(estimate), 1); /* unknown: timed */
  estimate_settle(estimate, 1000000, 1, 0, 1);
  for (int i = 0; i < 10; i++) CHECK_EQUAL(estimate_launch(estimate), 1);
  estimate_settle(estimate, 10000, 1, 0, 1);
  for (int i = 0; i < 19; i++) CHECK_EQUAL(estimate_launch(estimate), 0);
  CHECK_EQUAL(estimate_launch(estimate), 20);
  estimates_reset();
}

static void test_the_first_run_is_charged_afterwards(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  CHECK_EQUAL(estimate_settle(estimate, 5000, 1, 0, 1), 5000);
  CHECK_EQUAL(estimate_settle(estimate, 5000, 1, 5000, 1), 0);
  CHECK_EQUAL(estimate_settle(estimate, 5000, 1, 0, 7), 7 * 5000); /* launched before anything was known */
  estimates_reset();
}

static void test_down_at_once_up_slowly(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  estimate_settle(estimate, 16000, 1, 0, 1);
  CHECK_EQUAL(estimate_settle(estimate, 32000, 1, 16000, 1), 1000);
  CHECK_EQUAL(estimate_settle(estimate, 16000, 1, 17000, 1), -1000);
  CHECK_EQUAL(estimate_settle(estimate, 64000, 4, 16000, 1),
              0); /* others of the grant were there: says nothing */
  estimates_reset();
}

static void test_guesses_are_put_right_by_the_first_run_alone(void) {
  struct estimate *estimate = estimate_of(&kernel, 1);
  int64_t charged = estimate_settle(estimate, 30000, 3, 0, 1); /* even part: 10000 */
  CHECK_EQUAL(charged, 10000);
  charged += 10000 + estimate_settle(estimate, 8000, 2, 10000, 1); /* less: the longest guess stays */
  charged += 10000 + estimate_settle(estimate, 9000, 1, 10000, 1);
  CHECK_EQUAL(charged, 3 * 9000);
  estimates_reset();
}

int main(void) {
  test_keys();
  test_a_full_table_still_answers();
  test_long_kernels_are_all_timed_and_short_ones_now_and_then();
  test_the_first_run_is_charged_afterwards();
  test_down_at_once_up_slowly();
  test_guesses_are_put_right_by_the_first_run_alone();
  puts("estimates: ok");
}
