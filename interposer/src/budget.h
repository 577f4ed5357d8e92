/* SPDX-License-Identifier: Apache-2.0
 *
 * What a launch must be within: the grant's budget of device time, and the container's own where it has a
 * cap. */
#ifndef TESSERA_BUDGET_H
#define TESSERA_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "grants.h"
#include "limits.h"

struct budget {
  uint32_t cores;     /* percent of the card for the grant; 0: not throttled */
  uint32_t cap_cores; /* for this container; 0: the grant's */
};

/* What is in force at a moment of the coarse clock. */
struct budget budget_of(const struct grant *grant, uint64_t now);

static inline bool budget_is_free(struct budget budget) { return budget.cores == 0 && budget.cap_cores == 0; }

/* Whether there is no budget, and never was. Costs two cache lines. */
static inline bool budget_was_never(const struct grant *grant) {
  return limits_free(grant->limits) && !grant->nameless && (grant->cap == NULL || grant->cap->cores == 0);
}

/* 0: go, the cost (ns of device time) is taken. Else: the time at which to ask again; nothing is taken. */
uint64_t budget_admit(struct grant *grant, struct budget budget, uint64_t now, uint64_t cost);

/* The true cost was that much more (or less) than what was taken. */
void budget_correct(struct grant *grant, struct budget budget, uint64_t now, int64_t difference);

#endif
