/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a launch: held back until the grant's budget allows it, charged what its kernel is known to
 * take, now and then timed. Policy `disable`, 0 cores and 100 cores are not held back.
 *
 *   if (throttle_is_free() || throttle_is_paid(function, blocks)) return REAL(…)(…);
 *   struct launch launch = throttle_begin(function, blocks, stream, per_thread);
 *   return throttle_end(&launch, REAL(…)(…)); */
#ifndef TESSERA_THROTTLE_H
#define TESSERA_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "atomics.h"
#include "budget.h"
#include "cuda_types.h"
#include "grants.h"

struct launch {
  struct grant *grant; /* NULL: not limited */
  uint64_t debited;    /* ns of device time; 0: nothing was charged */
  struct budget budget;
  int sample; /* -1: not timed */
};

/* The grant, where there is just one, once it is known. */
extern __attribute__((visibility("hidden"))) _Atomic(struct grant *) throttle_only_grant;

/* A count for people: threads may lose one, a locked instruction would cost more than all the rest. */
static inline void throttle_count(struct tessera_process *slot) {
  store_relaxed(&slot->launches, load_relaxed(&slot->launches) + 1);
}

/* The short ways, a few nanoseconds each. Whether nothing is limited; it is counted then. */
static inline bool throttle_is_free(void) {
  struct grant *only = atomic_load_explicit(&throttle_only_grant, memory_order_relaxed);
  if (only == NULL || !budget_was_never(only)) return false;
  struct tessera_process *slot = region_known_slot(&only->region);
  /* Now and then the long way, which notes the time. */
  if (slot == NULL || (load_relaxed(&slot->launches) & 63) == 0) return false;
  throttle_count(slot);
  return true;
}

/* Whether launches into the stream are limited at all: for what is not known to be one without asking. */
bool throttle_is_due(CUstream stream);

/* Whether the launch was paid for with one before it. */
bool throttle_is_paid(const void *function, uint64_t blocks);

/* `function` may be any handle that stands for a fixed piece of work, a graph's for instance. */
struct launch throttle_begin(const void *function, uint64_t blocks, CUstream stream, bool per_thread);

/* Gives back what was charged where the driver has refused. Returns `result`. */
CUresult throttle_end(const struct launch *launch, CUresult result);

#endif
