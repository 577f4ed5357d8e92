/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include "atomics.h"
#include "pace.h"
#include "spans.h"

struct budget budget_of(const struct grant *grant, uint64_t now) {
  struct budget budget = {.cores = limits_pace(grant->limits, now).cores, .cap_cores = 0};
  if (!grant_is_capped(grant) || load_relaxed(&grant->limits->policy) == TESSERA_POLICY_DISABLE)
    return budget;
  uint32_t cores =
      grant->cap != NULL ? load_relaxed(&grant->cap->cores) : limits_tightest_cap(grant->limits).cores;
  if (cores < 100) budget.cap_cores = cores;
  return budget;
}

static uint32_t cap_number(const struct grant *grant) {
  const struct tessera_cap *caps = grant->limits->caps;
  bool known = grant->cap >= caps && grant->cap < caps + TESSERA_CAPS;
  return known ? (uint32_t)(grant->cap - caps) : TESSERA_CAPS;
}

uint64_t budget_admit(struct grant *grant, struct budget budget, uint64_t now, uint64_t cost) {
  struct tessera_usage *usage = grant->region.usage;
  uint64_t uncharged = budget.cores != 0 ? spans_uncharged(usage, now) : 0, ready = 0;
  if (budget.cap_cores == 0) return pace_admit(usage, budget.cores, now, uncharged, cost);
  /* A look first: what is taken from the cap and given back would hold up the container's others. */
  if (budget.cores != 0) ready = pace_look(usage, budget.cores, now, uncharged);
  if (ready == 0) ready = pace_admit_capped(usage, cap_number(grant), budget.cap_cores, now, cost);
  if (ready != 0 || budget.cores == 0) return ready;
  ready = pace_admit(usage, budget.cores, now, uncharged, cost);
  if (ready != 0) pace_correct_capped(usage, cap_number(grant), budget.cap_cores, now, -(int64_t)cost);
  return ready;
}

void budget_correct(struct grant *grant, struct budget budget, uint64_t now, int64_t difference) {
  struct tessera_usage *usage = grant->region.usage;
  if (budget.cap_cores != 0) pace_correct_capped(usage, cap_number(grant), budget.cap_cores, now, difference);
  if (budget.cores != 0) pace_correct(usage, budget.cores, now, difference);
}
