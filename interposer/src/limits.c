/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence lock over the limits: the writer never waits, readers try again. Fields are copied word by word
 * with atomic loads and stores, so a reader that overlaps a write reads old or new words, never torn ones,
 * and knows. */
#include "limits.h"

#include <stddef.h>

#include "atomics.h"

#define TRIES 1000
#define MEASURED_NS 30000000000u /* after the lease's end */
#define FIRST_WORD (offsetof(struct tessera_limits, uuid) / sizeof(uint64_t))
#define WORDS (sizeof(struct tessera_limits) / sizeof(uint64_t))
_Static_assert(offsetof(struct tessera_limits, uuid) % sizeof(uint64_t) == 0, "words begin at the uuid");
_Static_assert(sizeof(struct tessera_limits) % sizeof(uint64_t) == 0, "words end at the end");

/* Either struct is aligned to 8 and only touched as these words here. */
typedef uint64_t __attribute__((may_alias)) word;

static bool unchanged_since(const struct tessera_limits *shared, uint32_t sequence) {
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return (sequence & 1) == 0 && load_relaxed(&shared->sequence) == sequence;
}

bool limits_read(const struct tessera_limits *shared, struct tessera_limits *copy) {
  const word *from = (const word *)shared;
  word *to = (word *)copy;
  copy->magic = load_relaxed(&shared->magic);
  copy->version = load_relaxed(&shared->version);
  copy->size = load_relaxed(&shared->size);
  for (int try = 0; try < TRIES; try++) {
    uint32_t sequence = load_acquire(&shared->sequence);
    for (size_t i = FIRST_WORD; i < WORDS; i++) to[i] = load_relaxed(&from[i]);
    copy->sequence = sequence;
    if (unchanged_since(shared, sequence)) return true;
  }
  return false;
}

void limits_write(struct tessera_limits *shared, const struct tessera_limits *value) {
  const word *from = (const word *)value;
  word *to = (word *)shared;
  /* A writer that died in the middle left it odd: go on from there. */
  uint32_t sequence = load_relaxed(&shared->sequence) | 1;
  store_relaxed(&shared->sequence, sequence);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  for (size_t i = FIRST_WORD; i < WORDS; i++) store_relaxed(&to[i], from[i]);
  store_release(&shared->sequence, sequence + 1);
}

void limits_lend(struct tessera_limits *shared, uint32_t cores, uint32_t stretch, uint32_t stretch_unlent,
                 uint64_t until) {
  uint32_t sequence = load_relaxed(&shared->sequence) | 1;
  store_relaxed(&shared->sequence, sequence);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  store_relaxed(&shared->effective_cores, cores);
  store_relaxed(&shared->stretch, stretch);
  store_relaxed(&shared->stretch_unlent, stretch_unlent);
  store_relaxed(&shared->lease_until_ns, until);
  store_release(&shared->sequence, sequence + 1);
}

bool limits_valid(const struct tessera_limits *shared, uint64_t bytes) {
  return bytes >= TESSERA_LIMITS_SIZE_0 && shared->magic == TESSERA_LIMITS_MAGIC && shared->version != 0 &&
         shared->version <= TESSERA_LIMITS_VERSION && shared->size >= TESSERA_LIMITS_SIZE_0 &&
         shared->memory_bytes != 0 && shared->policy <= TESSERA_POLICY_DISABLE &&
         shared->cap_count <= TESSERA_CAPS;
}

struct tessera_cap limits_tightest_cap(const struct tessera_limits *shared) {
  struct tessera_cap least = {.memory_bytes = 0};
  uint32_t count = load_relaxed(&shared->cap_count);
  for (uint32_t i = 0; i < count && i < TESSERA_CAPS; i++) {
    uint64_t bytes = load_relaxed(&shared->caps[i].memory_bytes);
    uint32_t cores = load_relaxed(&shared->caps[i].cores);
    if (bytes != 0 && (least.memory_bytes == 0 || bytes < least.memory_bytes)) least.memory_bytes = bytes;
    if (cores != 0 && (least.cores == 0 || cores < least.cores)) least.cores = cores;
  }
  return least;
}

struct pace_limits limits_pace(const struct tessera_limits *shared, uint64_t now) {
  struct pace_limits found = {.cores = 0, .stretch = LIMITS_NO_STRETCH};
  for (int try = 0; try < TRIES; try++) {
    uint32_t sequence = load_acquire(&shared->sequence), policy = load_relaxed(&shared->policy);
    uint32_t guaranteed = load_relaxed(&shared->guaranteed_cores);
    uint64_t until = load_relaxed(&shared->lease_until_ns);
    bool leased = until > now, measured = until != 0 && (leased || now - until < MEASURED_NS);
    uint32_t stretch = load_relaxed(leased ? &shared->stretch : &shared->stretch_unlent);
    found.cores =
        leased && policy == TESSERA_POLICY_DEFAULT ? load_relaxed(&shared->effective_cores) : guaranteed;
    if (found.cores > 100) found.cores = 100;
    if (policy == TESSERA_POLICY_DISABLE || (guaranteed >= 100 && found.cores == 100)) found.cores = 0;
    found.stretch = measured && stretch > LIMITS_NO_STRETCH ? stretch : LIMITS_NO_STRETCH;
    if (unchanged_since(shared, sequence)) break;
  }
  return found;
}
