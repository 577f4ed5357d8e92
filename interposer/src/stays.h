/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that follow each other closely, so that the process is on the card all the while: a stay. The agent is
 * told of it as it would be of a long kernel, and it shows where those that were timed don't stand for the others.
 *
 * Callers exclude each other. */
#ifndef TESSERA_STAYS_H
#define TESSERA_STAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera_abi.h"

/* Kernels of the process that were on the card between two moments, or will have been. */
struct stay_part {
  uint32_t grant, slot; /* numbers */
  uint64_t came, start, until; /* start: of the turn in which the first one ran */
  uint64_t charged;            /* ns of the card's time, so far */
  bool is_told;                /* by a span of its own, and charged as such */
};

/* What is to be charged in addition for the part and those before it, in ns: where it is far more than was
   charged, for what it makes out roughly. The agent is told of the stay by spans. `stretch`: what it has found
   out; LIMITS_NO_STRETCH: what was charged is right. */
uint64_t stays_add(struct tessera_usage *usage, const struct stay_part *part, uint32_t stretch);

/* For a forked child. */
void stays_reset(void);

#endif
