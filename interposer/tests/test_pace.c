/* SPDX-License-Identifier: Apache-2.0
 *
 * The budget of device time, on a clock of the test's own. */
#include "pace.h"

#include <pthread.h>
#include <string.h>

#include "check.h"

#define MS 1000000ull
#define START (1000 * MS)

static struct tessera_usage usage;

static void reset(void) { memset(&usage, 0, sizeof usage); }

/* Device time taken in `span` by one that launches kernels of `cost` as soon as it may. */
static uint64_t taken_in(uint64_t span, uint32_t rate, uint64_t cost) {
  uint64_t now = START, taken = 0;
  while (now < START + span) {
    uint64_t ready = pace_admit(&usage, rate, now, 0, cost);
    if (ready != 0) {
      CHECK(ready > now);
      now = ready;
      continue;
    }
    taken += cost;
    now += cost;
  }
  return taken;
}

static void test_the_share_is_the_rate(void) {
  static const uint32_t rates[] = {1, 5, 30, 50, 75, 95, 99};
  static const uint64_t costs[] = {MS / 100, MS, 10 * MS, 100 * MS};
  for (unsigned int r = 0; r < sizeof rates / sizeof *rates; r++)
    for (unsigned int c = 0; c < sizeof costs / sizeof *costs; c++) {
      reset();
      uint64_t span = 100000 * MS, taken = taken_in(span, rates[r], costs[c]), due = span * rates[r] / 100;
      /* More than due is only what is saved up by idleness, the last kernel, and nanoseconds rounded off. */
      CHECK(taken <= due + PACE_BURST_NS + costs[c] + due / 10000);
      CHECK(taken + costs[c] * 2 + due / 1000 >= due);
    }
}

static void test_debt_is_repaid_in_full(void) {
  reset();
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, 400 * MS), 0);
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, MS), START - PACE_BURST_NS + 800 * MS);
  CHECK_EQUAL(pace_admit(&usage, 50, START + 800 * MS - PACE_BURST_NS - 1, 0, MS),
              START + 800 * MS - PACE_BURST_NS);
  CHECK_EQUAL(pace_admit(&usage, 50, START + 800 * MS - PACE_BURST_NS, 0, MS), 0);
}

static void test_idleness_saves_up_one_burst(void) {
  reset();
  uint64_t now = START + 3600 * 1000 * MS, launched = 0;
  while (pace_admit(&usage, 50, now, 0, MS) == 0) launched++;
  CHECK(launched >= PACE_BURST_NS / (2 * MS) && launched <= PACE_BURST_NS / (2 * MS) + 1);
}

static void test_corrections(void) {
  reset();
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, 0), 0);
  pace_correct(&usage, 50, START, 100 * (int64_t)MS);
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, MS), START - PACE_BURST_NS + 200 * MS);
  pace_correct(&usage, 50, START, -90 * (int64_t)MS);
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, MS), 0);
}

/* What runs and isn't charged yet is waited for as if it were, and stays for whoever charges it. */
static void test_what_is_not_charged_yet(void) {
  reset();
  CHECK_EQUAL(pace_admit(&usage, 50, START, 25 * MS, MS), 0);
  CHECK_EQUAL(usage.time_ready_ns, START - PACE_BURST_NS + 2 * MS);
  CHECK_EQUAL(pace_admit(&usage, 50, START, 100 * MS, MS), START - PACE_BURST_NS + 2 * MS + 200 * MS);
  CHECK_EQUAL(usage.time_ready_ns, START - PACE_BURST_NS + 2 * MS);
}

static void test_a_new_rate_rescales_what_is_owed(void) {
  reset();
  CHECK_EQUAL(pace_admit(&usage, 10, START, 0, 100 * MS), 0);
  uint64_t owed = pace_admit(&usage, 10, START, 0, 0) - START;
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, 0), START + owed * 10 / 50);
  CHECK_EQUAL(pace_admit(&usage, 5, START, 0, 0), START + owed * 2);
}

static void test_a_figure_from_nowhere_is_not_waited_for(void) {
  reset();
  usage.time_ready_ns = UINT64_MAX;
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, MS), 0);
  pace_correct(&usage, 50, START, INT64_MAX);
  CHECK(pace_admit(&usage, 50, START, 0, MS) <= START + 2 * 3600 * 1000 * MS);
}

static void *launch_ten_thousand(void *argument) {
  for (int i = 0; i < 10000; i++) pace_correct(&usage, 50, START, 1000);
  return argument;
}

static void test_no_debit_is_lost_between_threads(void) {
  pthread_t threads[4];
  reset();
  CHECK_EQUAL(pace_admit(&usage, 50, START, 0, 50 * MS), 0);
  uint64_t before = usage.time_ready_ns;
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, launch_ten_thousand, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_EQUAL(usage.time_ready_ns - before, 4 * 10000 * 2000);
}

int main(void) {
  test_the_share_is_the_rate();
  test_debt_is_repaid_in_full();
  test_idleness_saves_up_one_burst();
  test_corrections();
  test_what_is_not_charged_yet();
  test_a_new_rate_rescales_what_is_owed();
  test_a_figure_from_nowhere_is_not_waited_for();
  test_no_debit_is_lost_between_threads();
  puts("pace: ok");
}
