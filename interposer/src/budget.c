/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include "atomics.h"
#include "pace.h"
#include "spans.h"

struct budget budget_of(const struct grant *grant, uint64_t now) {
  struct budget budget = {.cores = limits_pace(grant->limits, now).cores, .cap_cores = 0};
  if (grant->cap == NULL || load_relaxed(&grant->limits->policy) == TESSERA_POLICY_DISABLE) return budget;
  uint32_t cores = load_relaxed(&grant->cap->cores);
  if (cores < 100) budget.cap_cores = cores;
  return budget;
}

static uint64_t *cap_word(struct grant *grant) {
  const struct tessera_cap *caps = grant->limits->caps;
  bool known = grant->cap >= caps && grant->cap < caps + TESSERA_CAPS;
  return &grant->region.usage->cap_ready_ns[known ? grant->cap - caps : TESSERA_CAPS];
}

uint64_t budget_admit(struct grant *grant, struct budget budget, uint64_t now, uint64_t cost) {
  uint64_t ready = 0;
  if (budget.cap_cores != 0) ready = pace_admit_at(cap_word(grant), budget.cap_cores, now, 0, cost);
  if (ready != 0 || budget.cores == 0) return ready;
  uint64_t uncharged = spans_uncharged(grant->region.usage, now);
  ready = pace_admit(grant->region.usage, budget.cores, now, uncharged, cost);
  if (ready != 0 && budget.cap_cores != 0)
    pace_correct_at(cap_word(grant), budget.cap_cores, now, -(int64_t)cost);
  return ready;
}

void budget_correct(struct grant *grant, struct budget budget, uint64_t now, int64_t difference) {
  if (budget.cap_cores != 0) pace_correct_at(cap_word(grant), budget.cap_cores, now, difference);
  if (budget.cores != 0) pace_correct(grant->region.usage, budget.cores, now, difference);
}
