/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of a launch: held back until the grant's budget allows it, charged what its kernel is known to
 * take, now and then timed. Policy `disable`, 0 cores and 100 cores are not held back.
 *
 *   struct launch launch = throttle_begin(function, blocks, stream, per_thread);
 *   return throttle_end(&launch, REAL(…)(…)); */
#ifndef TESSERA_THROTTLE_H
#define TESSERA_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_types.h"
#include "grants.h"

struct launch {
  struct grant *grant; /* NULL: nothing was charged */
  uint64_t debited;    /* ns of device time */
  uint32_t rate;
  int sample; /* -1: not timed */
};

/* `function` may be any handle that stands for a fixed piece of work, a graph's for instance. */
struct launch throttle_begin(const void *function, uint64_t blocks, CUstream stream, bool per_thread);

/* Gives back what was charged where the driver has refused. Returns `result`. */
CUresult throttle_end(const struct launch *launch, CUresult result);

#endif
