/* SPDX-License-Identifier: Apache-2.0 */
#include "estimates.h"

#include <stdbool.h>
#include <string.h>

#define ENTRIES 2048u /* a power of two */
#define PROBES 8u
#define RISE 16u /* a longer time moves the estimate by this part of the difference */

/* Timing a launch costs the driver two event records, a few microseconds: so kernels from here on are all
   timed, and shorter ones as often as makes up this much device time. */
#define TIMED_NS 200000u
#define MOST_UNSAMPLED 32u

static struct estimate table[ENTRIES];
static struct estimate overflow;

/* Sizes within a quarter of each other are one: the highest bit and the two behind it. */
static uint64_t bucket(uint64_t blocks) {
  if (blocks < 8) return blocks;
  unsigned int bit = 63u - (unsigned int)__builtin_clzll(blocks);
  return (uint64_t)bit << 2 | (blocks >> (bit - 2) & 3u);
}

struct estimate *estimate_of(const void *function, uint64_t blocks) {
  uint64_t key = (((uint64_t)(uintptr_t)function << 8) ^ bucket(blocks)) | 1ull << 63;
  uint64_t hash = key * 0x9E3779B97F4A7C15u;
  for (unsigned int probe = 0; probe < PROBES; probe++) {
    struct estimate *entry = &table[((hash >> 40) + probe) % ENTRIES];
    uint64_t seen = atomic_load_explicit(&entry->key, memory_order_relaxed);
    if (seen == key) return entry;
    if (seen == 0 && atomic_compare_exchange_strong_explicit(&entry->key, &seen, key, memory_order_relaxed,
                                                             memory_order_relaxed))
      return entry;
    if (seen == key) return entry;
  }
  return &overflow;
}

static uint32_t every(uint64_t ns) {
  if (ns >= TIMED_NS || ns == 0) return 1;
  uint64_t launches = TIMED_NS / ns;
  return launches < MOST_UNSAMPLED ? (uint32_t)launches : MOST_UNSAMPLED;
}

uint32_t estimate_launch(struct estimate *estimate) {
  uint32_t launches = atomic_load_explicit(&estimate->unsampled, memory_order_relaxed) + 1;
  bool timed = launches >= every(atomic_load_explicit(&estimate->ns, memory_order_relaxed));
  atomic_store_explicit(&estimate->unsampled, timed ? 0 : launches, memory_order_relaxed);
  return timed ? launches : 0;
}

/* Of guesses the longest counts: too long a one keeps launches apart, so that soon one is alone; too short a one would
   push them together, and be believed for ever. */
static uint64_t learnt(uint64_t before, bool known, uint64_t elapsed, uint32_t sharers) {
  if (!known) return sharers == 1 || elapsed / sharers > before ? elapsed / sharers : before;
  if (elapsed < before) return elapsed;
  return sharers > 1 ? before : before + (elapsed - before) / RISE;
}

int64_t estimate_settle(struct estimate *estimate, uint64_t elapsed_ns, uint32_t sharers, uint64_t debited,
                        uint32_t launches) {
  bool known = atomic_load_explicit(&estimate->alone, memory_order_relaxed) != 0;
  uint64_t before = atomic_load_explicit(&estimate->ns, memory_order_relaxed);
  uint64_t cost = learnt(before, known, elapsed_ns, sharers);
  if (cost == 0) cost = 1; /* 0 is for unknown */
  atomic_store_explicit(&estimate->ns, cost, memory_order_relaxed);
  int64_t difference = ((int64_t)cost - (int64_t)debited) * (int64_t)launches;
  if (known) return difference;
  if (sharers > 1) {
    atomic_fetch_add_explicit(&estimate->guessed, launches, memory_order_relaxed);
    atomic_fetch_add_explicit(&estimate->guessed_ns, cost * launches, memory_order_relaxed);
    return difference;
  }
  atomic_store_explicit(&estimate->alone, 1, memory_order_relaxed);
  uint64_t guessed = atomic_exchange_explicit(&estimate->guessed, 0, memory_order_relaxed);
  uint64_t guessed_ns = atomic_exchange_explicit(&estimate->guessed_ns, 0, memory_order_relaxed);
  return difference + (int64_t)(cost * guessed) - (int64_t)guessed_ns;
}

void estimates_reset(void) {
  memset(table, 0, sizeof table);
  memset(&overflow, 0, sizeof overflow);
}
