/* SPDX-License-Identifier: Apache-2.0
 *
 * Short kernels in a row, alone and while others have turns in between. */
#include "stays.h"

#include <string.h>

#include "check.h"
#include "limits.h"

#define US 1000ull
#define MS (1000 * US)
#define START (1000 * MS)

static struct tessera_usage usage;

static void reset(void) {
  memset(&usage, 0, sizeof usage);
  usage.slots_high = 8;
  stays_reset();
}

static uint64_t add_after(uint64_t came, uint64_t start, uint64_t until, uint64_t charged, uint32_t stretch) {
  const struct stay_part part = {
      .slot = 3, .came = START + came, .start = START + start, .until = START + until, .charged = charged};
  return stays_add(&usage, &part, stretch);
}

static uint64_t add(uint64_t from, uint64_t until, uint64_t charged, uint32_t stretch) {
  return add_after(from, from, until, charged, stretch);
}

/* Nanoseconds that spans tell of, and how many there are. */
static uint64_t told(uint32_t *count) {
  uint64_t sum = 0;
  *count = usage.span_next;
  for (uint32_t i = 0; i < usage.span_next; i++) {
    CHECK_EQUAL(usage.spans[i].slot, 3);
    sum += usage.spans[i].length_us * US;
  }
  return sum;
}

static void test_alone_what_was_charged_is_right(void) {
  reset();
  for (uint64_t i = 0; i < 1000; i++) CHECK_EQUAL(add(i * 200 * US, (i + 1) * 200 * US, 170 * US, 1000), 0);
  uint32_t count;
  CHECK_EQUAL(told(&count), 200 * MS);
  CHECK_EQUAL(count, 20);
}

/* Ten kernels of 200 us, then a turn of another, in which one is cut. */
static uint64_t charged_in_addition(uint64_t each, uint32_t stretch) {
  uint64_t more = 0;
  for (uint64_t i = 0; i < 50; i++) {
    uint64_t from = (i / 10 * 4000 + i % 10 * 200) * US, until = from + (i % 10 == 9 ? 2200 : 200) * US;
    more += add(from, until, each, stretch);
  }
  return more;
}

static void test_others_turns_are_not_charged(void) {
  reset();
  CHECK_EQUAL(charged_in_addition(200 * US, 2000), 0);
}

static void test_what_was_charged_far_too_little_is(void) {
  reset();
  uint64_t more = charged_in_addition(20 * US, 2000);
  CHECK(more > 5600 * US && more <= 9 * MS); /* half of 20 ms is due, within the half that is let pass */
}

static void test_a_little_too_little_is_let_pass(void) {
  reset();
  CHECK_EQUAL(charged_in_addition(150 * US, 2000), 0);
}

static void test_a_short_stay_is_not_judged_by(void) {
  reset();
  for (uint64_t i = 0; i < 100; i++) CHECK_EQUAL(add(i * MS, i * MS + 900 * US, 100 * US, 3000), 0);
}

static void test_nobody_pays_for_what_he_has_waited(void) {
  reset();
  for (uint64_t i = 0; i < 100; i++)
    CHECK_EQUAL(add_after(i * 4 * MS, i * 4 * MS + 2 * MS, i * 4 * MS + 2100 * US, 100 * US, 1400), 0);
  uint32_t count;
  CHECK_EQUAL(told(&count), 99 * 2100 * US); /* the last one may go on */
}

static void test_what_is_shortest_is_not_told(void) {
  reset();
  uint32_t count;
  for (uint64_t i = 0; i < 100; i++) add(i * MS, i * MS + 290 * US, 290 * US, 1000);
  CHECK_EQUAL(told(&count), 0);
}

static void test_what_overlaps_counts_once(void) {
  reset();
  CHECK_EQUAL(add(0, 600 * US, 100 * US, 2000), 0);
  CHECK_EQUAL(add(500 * US, 950 * US, 100 * US, 2000), 0);
  CHECK_EQUAL(add(100 * US, 300 * US, 100 * US, 2000), 0); /* of another stream */
  CHECK_EQUAL(add(900 * US, 1200 * US, 50 * US, 2000), 250 * US);
}

static void test_the_grants_own_processes_have_their_part(void) {
  reset();
  usage.spans[0].start_ns = START;
  usage.spans[0].length_us = 2000;
  usage.spans[0].slot = 4;
  usage.span_next = 1;
  uint64_t more = add(0, 2 * MS, 100 * US, 2000);
  CHECK(more >= 390 * US && more <= 410 * US); /* half of a half is due */
}

static void test_a_long_kernel_in_it_is_told_by_itself(void) {
  reset();
  uint32_t count;
  add(0, 3 * MS, 3 * MS, 1000);
  const struct stay_part part = {.slot = 3,
                                 .came = START + 3 * MS,
                                 .start = START + 3 * MS,
                                 .until = START + 9 * MS,
                                 .charged = MS,
                                 .is_told = true};
  CHECK_EQUAL(stays_add(&usage, &part, 2000), 0);
  CHECK_EQUAL(told(&count), 3 * MS);
  add(9 * MS, 11 * MS, 2 * MS, 1000);
  add(50 * MS, 51 * MS, MS, 1000); /* another stay: the last one is told of */
  CHECK_EQUAL(told(&count), 5 * MS);
  CHECK_EQUAL(count, 2);
}

static void test_a_long_kernel_at_its_begin_is_told_once(void) {
  reset();
  uint32_t count;
  const struct stay_part part = {.slot = 3,
                                 .came = START,
                                 .start = START + 2 * MS,
                                 .until = START + 9 * MS,
                                 .charged = MS,
                                 .is_told = true};
  CHECK_EQUAL(stays_add(&usage, &part, 2000), 0);
  add(50 * MS, 51 * MS, MS, 1000); /* another stay */
  CHECK_EQUAL(told(&count), 0);
}

int main(void) {
  test_alone_what_was_charged_is_right();
  test_others_turns_are_not_charged();
  test_what_was_charged_far_too_little_is();
  test_a_little_too_little_is_let_pass();
  test_a_short_stay_is_not_judged_by();
  test_nobody_pays_for_what_he_has_waited();
  test_what_is_shortest_is_not_told();
  test_what_overlaps_counts_once();
  test_the_grants_own_processes_have_their_part();
  test_a_long_kernel_in_it_is_told_by_itself();
  test_a_long_kernel_at_its_begin_is_told_once();
  puts("stays: ok");
  return 0;
}
