/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits file's sequence lock, both ends. */
#ifndef TESSERA_LIMITS_H
#define TESSERA_LIMITS_H

#include <stdbool.h>

#include "tessera_abi.h"

/* A consistent copy. false: the writer was in the middle for longer than the tries last (or died there);
   `copy` is then what was seen last, still of valid fields, perhaps of two different writes. */
bool limits_read(const struct tessera_limits *shared, struct tessera_limits *copy);

/* Replaces what may change while the file is mapped: all but magic, version and size. One writer at a time */
void limits_write(struct tessera_limits *shared, const struct tessera_limits *value);

/* Replaces what the agent finds out while programs run, and until when it counts. One writer at a time. */
void limits_lend(struct tessera_limits *shared, uint32_t cores, uint32_t stretch, uint32_t stretch_unlent,
                 uint64_t until);

/* The least of all caps, as they are now: memory and cores each; 0: none has one. */
struct tessera_cap limits_tightest_cap(const struct tessera_limits *shared);

/* Whether magic, version and size are such that this code may read the struct out of `bytes` bytes of file. */
bool limits_valid(const struct tessera_limits *shared, uint64_t bytes);

#define LIMITS_NO_STRETCH 1000u

struct pace_limits {
  uint32_t cores;   /* percent of the card in force by policy and lease, 1 to 100; 0: not throttled */
  uint32_t stretch; /* thousandths; at least LIMITS_NO_STRETCH */
};

/* Not throttled, and the agent has never said otherwise. Costs two cache lines. */
static inline bool limits_free(const struct tessera_limits *shared) {
  uint32_t cores = __atomic_load_n(&shared->guaranteed_cores, __ATOMIC_RELAXED);
  return (cores - 1 >= 99 || __atomic_load_n(&shared->policy, __ATOMIC_RELAXED) == TESSERA_POLICY_DISABLE) &&
         __atomic_load_n(&shared->lease_until_ns, __ATOMIC_RELAXED) == 0;
}

/* What is in force at a moment of the coarse clock. */
struct pace_limits limits_pace(const struct tessera_limits *shared, uint64_t now);

#endif
