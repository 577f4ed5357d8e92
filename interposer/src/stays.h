/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that follow each other closely, so that the process is on the card all the while: a stay. No short
 * kernel tells by itself whether another process had a turn in between; a stay does, as a long kernel would.
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
  uint64_t from, until;
  uint64_t charged; /* ns of the card's time, so far */
  bool is_told;     /* by a span of its own, and charged as such */
};

/* What is to be charged in addition for the part and those before it, in ns; less than 0: given back. The
   agent is told of the stay by spans. `stretch`: what it has found out; LIMITS_NO_STRETCH: all is charged. */
int64_t stays_add(struct tessera_usage *usage, const struct stay_part *part, uint32_t stretch);

/* For a forked child. */
void stays_reset(void);

#endif
