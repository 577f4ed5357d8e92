/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence lock over the limits: the writer never waits, readers try again. Fields are copied word by word
 * with atomic loads and stores, so a reader that overlaps a write reads old or new words, never torn ones,
 * and knows. */
#include "limits.h"

#include <stddef.h>

#include "atomics.h"

#define TRIES 1000
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

bool limits_valid(const struct tessera_limits *shared, uint64_t bytes) {
  return bytes >= sizeof *shared && shared->magic == TESSERA_LIMITS_MAGIC && shared->version != 0 &&
         shared->version <= TESSERA_ABI_VERSION && shared->size >= sizeof *shared &&
         shared->memory_bytes != 0 && shared->policy <= TESSERA_POLICY_DISABLE &&
         shared->cap_count <= TESSERA_CAPS;
}

uint32_t limits_cores(const struct tessera_limits *shared) {
  uint32_t cores = 0;
  for (int try = 0; try < TRIES; try++) {
    uint32_t sequence = load_acquire(&shared->sequence);
    uint32_t policy = load_relaxed(&shared->policy);
    cores = 0;
    if (policy == TESSERA_POLICY_DEFAULT) cores = load_relaxed(&shared->effective_cores);
    if (policy == TESSERA_POLICY_FORCE) cores = load_relaxed(&shared->guaranteed_cores);
    if (unchanged_since(shared, sequence)) break;
  }
  return cores;
}
