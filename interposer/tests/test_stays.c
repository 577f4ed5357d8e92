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

static int64_t add(uint64_t from, uint64_t until, uint64_t charged, uint32_t stretch) {
  const struct stay_part part = {.slot = 3, .from = START + from, .until = START + until, .charged = charged};
  return stays_add(&usage, &part, stretch);
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

static void test_a_part_of_a_long_stay_is_ones_own(void) {
  reset();
  int64_t charged = 0;
  for (uint64_t i = 0; i < 50; i++) { /* ten kernels of 200 us, then a turn of another, in which one is cut */
    uint64_t from = (i / 10 * 4000 + i % 10 * 200) * US, until = from + (i % 10 == 9 ? 2200 : 200) * US;
    charged += 200 * (int64_t)US + add(from, until, 200 * US, 2000);
  }
  CHECK_EQUAL(charged, 10 * MS); /* half of 20 ms */
}

static void test_a_short_stay_is_charged_for_what_ran(void) {
  reset();
  uint32_t count;
  for (uint64_t i = 0; i < 100; i++) CHECK_EQUAL(add(i * MS, i * MS + 900 * US, 500 * US, 3000), 0);
  CHECK_EQUAL(told(&count), 0);
}

static void test_what_was_charged_is_put_right_when_a_stay_gets_long(void) {
  reset();
  CHECK_EQUAL(add(0, 600 * US, 600 * US, 2000), 0);
  CHECK_EQUAL(add(500 * US, 1200 * US, 600 * US, 2000), -600 * (int64_t)US); /* they overlap */
  CHECK_EQUAL(add(1200 * US, 1800 * US, 100 * US, 2000), 200 * (int64_t)US);
}

static void test_what_overlaps_counts_once(void) {
  reset();
  CHECK_EQUAL(add(0, 600 * US, 100 * US, 2000), 0);
  CHECK_EQUAL(add(500 * US, 950 * US, 100 * US, 2000), 0);
  CHECK_EQUAL(add(100 * US, 300 * US, 100 * US, 2000), 0); /* of another stream */
  CHECK_EQUAL(add(900 * US, 1200 * US, 100 * US, 2000), 200 * (int64_t)US);
}

static void test_the_grants_own_processes_have_their_part(void) {
  reset();
  usage.spans[0].start_ns = START;
  usage.spans[0].length_us = 2000;
  usage.spans[0].slot = 4;
  usage.span_next = 1;
  int64_t more = add(0, 2 * MS, 2 * MS, 2000);
  CHECK(more <= -1490 * (int64_t)US && more >= -1510 * (int64_t)US); /* half of a half is left */
}

static void test_a_long_kernel_in_it_is_told_by_itself(void) {
  reset();
  uint32_t count;
  add(0, 3 * MS, 3 * MS, 1000);
  const struct stay_part part = {
      .slot = 3, .from = START + 3 * MS, .until = START + 9 * MS, .charged = MS, .is_told = true};
  CHECK_EQUAL(stays_add(&usage, &part, 2000), 0);
  CHECK_EQUAL(told(&count), 3 * MS);
  add(9 * MS, 11 * MS, 2 * MS, 1000);
  add(50 * MS, 51 * MS, MS, 1000); /* another stay: the last one is told of */
  CHECK_EQUAL(told(&count), 5 * MS);
  CHECK_EQUAL(count, 2);
}

int main(void) {
  test_alone_what_was_charged_is_right();
  test_a_part_of_a_long_stay_is_ones_own();
  test_a_short_stay_is_charged_for_what_ran();
  test_what_was_charged_is_put_right_when_a_stay_gets_long();
  test_what_overlaps_counts_once();
  test_the_grants_own_processes_have_their_part();
  test_a_long_kernel_in_it_is_told_by_itself();
  puts("stays: ok");
  return 0;
}
