/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds of CLOCK_MONOTONIC, the clock of the shared structs. */
#ifndef TESSERA_CLOCK_H
#define TESSERA_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static inline uint64_t clock_now(void) { return clock_read(CLOCK_MONOTONIC); }

/* Up to one kernel tick (1 to 10 ms) behind clock_now, never ahead; a third of its price. */
static inline uint64_t clock_coarse(void) { return clock_read(CLOCK_MONOTONIC_COARSE); }

#endif
