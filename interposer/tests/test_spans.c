/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose time it was, while processes take turns on the card. */
#include "spans.h"

#include <string.h>

#include "check.h"

#define MS 1000000ull
#define START (1000 * MS)

static struct tessera_usage usage;

/* Within a hundredth. */
static void check_part(uint64_t start, uint64_t end, uint64_t expected) {
  uint64_t part = spans_own_part(&usage, 0, START + start, START + end), most = (end - start) / 100 + 64;
  CHECK(part + most >= expected && part <= expected + most);
}

static void reset(void) {
  memset(&usage, 0, sizeof usage);
  usage.slots_high = 8;
  for (int i = 0; i < 64; i++) usage.process[i].start_ns = 1;
}

static void test_alone_all_of_it_is_ones_own(void) {
  reset();
  spans_note(&usage, 0, START - 10 * MS, START + 5 * MS); /* its own don't count */
  check_part(0, 10 * MS, 10 * MS);
  CHECK_EQUAL(spans_own_part(&usage, 0, START, START + 7), 7);
  CHECK_EQUAL(spans_own_part(&usage, 0, START, START), 0);
  CHECK_EQUAL(spans_own_part(&usage, 0, START, START - 1), 0);
}

static void test_others_get_an_even_part_while_they_are_there(void) {
  reset();
  spans_note(&usage, 1, START - 100 * MS, START);          /* before */
  spans_note(&usage, 1, START + 20 * MS, START + 30 * MS); /* after */
  check_part(0, 20 * MS, 20 * MS);
  spans_note(&usage, 1, START + 15 * MS, START + 19 * MS);
  check_part(0, 20 * MS, 18 * MS);
  for (uint32_t slot = 2; slot < 5; slot++) spans_note(&usage, slot, START - MS, START + 10 * MS);
  check_part(0, 20 * MS, 18 * MS - 7500000);
}

static void test_many_short_stays(void) {
  reset();
  for (uint64_t i = 0; i < 100; i++) spans_note(&usage, 1, START + i * MS, START + i * MS + 300000);
  check_part(0, 100 * MS, 85 * MS);
}

static void test_who_is_still_there_counts_as_long_as_is_known(void) {
  reset();
  usage.process[1].resident_ns = START + 5 * MS;
  usage.process[1].resident_until = START + 9 * MS;
  usage.process[0].resident_ns = START;
  usage.process[0].resident_until = START + 10 * MS;
  check_part(0, 10 * MS, 8 * MS);
  usage.process[1].start_ns = 0; /* dead: what stands there still was its */
  check_part(0, 10 * MS, 10 * MS);
  usage.process[1].start_ns = 1;
  usage.process[1].resident_ns = 0;
  check_part(0, 10 * MS, 10 * MS);
}

static void test_the_oldest_are_forgotten(void) {
  reset();
  for (int i = 0; i < 3 * TESSERA_SPANS; i++) spans_note(&usage, 1, START, START + MS);
  CHECK_EQUAL(usage.span_next, 3 * TESSERA_SPANS);
  for (int i = 0; i < TESSERA_SPANS; i++) spans_note(&usage, 1, START - 2 * MS, START - MS);
  check_part(0, MS, MS);
}

static void be_there(uint32_t slot, uint64_t since, uint64_t until) {
  usage.process[slot].resident_ns = START + since;
  usage.process[slot].resident_until = START + until;
}

static void test_what_is_overdue_is_not_charged_yet(void) {
  reset();
  CHECK_EQUAL(spans_uncharged(&usage, START), 0);
  be_there(0, 10 * MS, 20 * MS);
  CHECK_EQUAL(spans_uncharged(&usage, START + 20 * MS), 0);
  CHECK_EQUAL(spans_uncharged(&usage, START + 27 * MS), 7 * MS);
  be_there(1, 10 * MS, 40 * MS); /* they take turns */
  CHECK_EQUAL(spans_uncharged(&usage, START + 30 * MS), 5 * MS);
  be_there(2, 22 * MS, 0); /* for the first time */
  CHECK_EQUAL(spans_uncharged(&usage, START + 30 * MS), 6 * MS);
  usage.process[2].start_ns = 0; /* dead */
  CHECK_EQUAL(spans_uncharged(&usage, START + 30 * MS), 5 * MS);
  be_there(2, 0, 0);
  usage.process[2].resident_ns = 0; /* gone */
  CHECK_EQUAL(spans_uncharged(&usage, START + 30 * MS), 5 * MS);
  uint64_t late = START + 20 * MS + SPANS_OVERDUE_NS; /* the first may have ended long ago */
  CHECK_EQUAL(spans_uncharged(&usage, late - 1), SPANS_OVERDUE_NS - 10 * MS - 1);
  CHECK_EQUAL(spans_uncharged(&usage, late), SPANS_OVERDUE_NS - 20 * MS);
}

/* Whatever a tenant has written there, the part is between nothing and all. */
static void test_figures_from_nowhere(void) {
  reset();
  memset(usage.spans, 0xff, sizeof usage.spans);
  usage.slots_high = UINT32_MAX;
  for (int i = 0; i < 64; i++) usage.process[i].resident_ns = 1, usage.process[i].resident_until = UINT64_MAX;
  CHECK(spans_own_part(&usage, 0, START, START + 10 * MS) <= 10 * MS);
  CHECK(spans_uncharged(&usage, START) <= SPANS_OVERDUE_NS);
}

int main(void) {
  test_alone_all_of_it_is_ones_own();
  test_others_get_an_even_part_while_they_are_there();
  test_many_short_stays();
  test_who_is_still_there_counts_as_long_as_is_known();
  test_the_oldest_are_forgotten();
  test_what_is_overdue_is_not_charged_yet();
  test_figures_from_nowhere();
  puts("spans: ok");
}
