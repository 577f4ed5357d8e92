/* SPDX-License-Identifier: Apache-2.0
 *
 * A launch is within the grant's budget and the container's, or takes from neither. */
#include "budget.h"

#include <string.h>

#include "check.h"
#include "pace.h"

#define MS 1000000ull
#define START (1000 * MS)

static struct tessera_limits limits;
static struct tessera_usage usage;
static struct grant grant;

static void reset(uint32_t cores, uint32_t cap) {
  memset(&limits, 0, sizeof limits);
  memset(&usage, 0, sizeof usage);
  memset(&grant, 0, sizeof grant);
  limits.guaranteed_cores = cores;
  limits.caps[1].cores = cap;
  grant.limits = &limits;
  grant.region.usage = &usage;
  grant.cap = &limits.caps[1];
}

/* Device time taken in a hundred seconds by launches of 1 ms as soon as they may go. */
static uint64_t taken(void) {
  uint64_t now = START, sum = 0;
  while (now < START + 100000 * MS) {
    uint64_t ready = budget_admit(&grant, budget_of(&grant, now), now, MS);
    now = ready != 0 ? ready : now + MS;
    if (ready == 0) sum += MS;
  }
  return sum;
}

static void test_the_smaller_one_holds(void) {
  static const uint32_t rows[][3] = {{30, 0, 30}, {30, 10, 10}, {10, 30, 10}, {0, 20, 20}, {30, 100, 30}};
  for (unsigned int i = 0; i < sizeof rows / sizeof *rows; i++) {
    reset(rows[i][0], rows[i][1]);
    uint64_t due = rows[i][2] * 1000 * MS;
    CHECK(taken() + 2 * MS >= due && taken() <= due + 3 * PACE_BURST_NS);
  }
}

static void test_a_refusal_takes_from_neither(void) {
  reset(10, 50);
  CHECK_EQUAL(budget_admit(&grant, budget_of(&grant, START), START, 100 * MS), 0);
  uint64_t cap = usage.cap_ready_ns[1];
  uint64_t later = cap; /* the container may, the grant may not */
  CHECK(budget_admit(&grant, budget_of(&grant, later), later, 7 * MS) > later);
  CHECK_EQUAL(usage.cap_ready_ns[1], cap);
}

/* Taken and given back, it would look to the container's other processes like an owed launch. */
static void test_a_refusal_by_the_grant_does_not_touch_the_cap(void) {
  reset(10, 50);
  usage.time_rate = 10;
  usage.time_ready_ns = START + MS;
  CHECK_EQUAL(budget_admit(&grant, budget_of(&grant, START), START, 7 * MS), START + MS);
  CHECK_EQUAL(usage.cap_ready_ns[1], 0);
}

static void test_what_is_put_right_is_in_both(void) {
  reset(50, 10);
  budget_correct(&grant, budget_of(&grant, START), START, 100 * (int64_t)MS);
  CHECK_EQUAL(usage.time_ready_ns, START - PACE_BURST_NS + 200 * MS);
  CHECK_EQUAL(usage.cap_ready_ns[1], START - PACE_BURST_NS + 1000 * MS);
}

static void test_who_does_not_know_its_cap_has_the_last_word(void) {
  static const struct tessera_cap tightest = {.cores = 10};
  reset(50, 40);
  grant.cap = &tightest;
  budget_admit(&grant, budget_of(&grant, START), START, MS);
  CHECK_EQUAL(usage.cap_ready_ns[1], 0);
  CHECK_EQUAL(usage.cap_ready_ns[TESSERA_CAPS], START - PACE_BURST_NS + 10 * MS);
}

static void test_what_a_container_owes_follows_its_cap(void) {
  reset(0, 10);
  CHECK_EQUAL(budget_admit(&grant, budget_of(&grant, START), START, 100 * MS), 0);
  uint64_t owed = budget_admit(&grant, budget_of(&grant, START), START, MS) - START;
  limits.caps[1].cores = 50;
  CHECK_EQUAL(budget_admit(&grant, budget_of(&grant, START), START, MS), START + owed / 5);
  limits.caps[1].cores = 5;
  CHECK_EQUAL(budget_admit(&grant, budget_of(&grant, START), START, MS), START + owed * 2);
}

static void test_what_is_free(void) {
  reset(0, 0);
  CHECK(budget_was_never(&grant) && budget_is_free(budget_of(&grant, START)));
  reset(100, 0);
  CHECK(budget_was_never(&grant) && budget_is_free(budget_of(&grant, START)));
  reset(0, 10);
  CHECK(!budget_was_never(&grant) && !budget_is_free(budget_of(&grant, START)));
  limits.policy = TESSERA_POLICY_DISABLE;
  CHECK(budget_is_free(budget_of(&grant, START)));
  reset(0, 0);
  limits.lease_until_ns = START + 1; /* what is left over, and the agent says how much */
  limits.effective_cores = 40;
  CHECK(!budget_was_never(&grant) && budget_of(&grant, START).cores == 40);
  CHECK(budget_is_free(budget_of(&grant, START + 1)));
}

int main(void) {
  test_the_smaller_one_holds();
  test_a_refusal_takes_from_neither();
  test_a_refusal_by_the_grant_does_not_touch_the_cap();
  test_what_is_put_right_is_in_both();
  test_who_does_not_know_its_cap_has_the_last_word();
  test_what_a_container_owes_follows_its_cap();
  test_what_is_free();
  puts("budget: ok");
}
