/* SPDX-License-Identifier: Apache-2.0 */
#include "estimates.h"

#include <stdbool.h>
#include <string.h>

#define ENTRIES 2048u /* a power of two */
#define PROBES 8u
#define SMOOTH 4u        /* a time moves the estimate by this part of the difference; */
#define SMOOTH_SHORT 16u /* of a short one, which stands for many, by this */

/* Short kernels are paid for and timed once for as many as make up ESTIMATE_LONG_NS, at most so many. */
#define MOST_UNSAMPLED 128u

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
  if (ns >= ESTIMATE_LONG_NS || ns == 0) return 1;
  uint64_t launches = ESTIMATE_LONG_NS / ns;
  return launches < MOST_UNSAMPLED ? (uint32_t)launches : MOST_UNSAMPLED;
}

/* Between half as many and one and a half times: a program that launches a function in turns, now with little
   work, now with much, would else have the same turn timed for ever. */
static uint32_t varied(struct estimate *estimate, uint32_t launches) {
  uint32_t random = atomic_load_explicit(&estimate->random, memory_order_relaxed) * 1664525u + 1013904223u;
  atomic_store_explicit(&estimate->random, random, memory_order_relaxed);
  return launches < 2 ? launches : launches - launches / 2 + (random >> 16) % launches;
}

/* No more than what is launched in ESTIMATE_LONG_NS of real time, going by the last ones: where they come slowly, each
   can be timed, and none that takes long is missed. */
static uint32_t as_they_come(struct estimate *estimate, uint64_t now, uint32_t launches) {
  uint64_t last = atomic_exchange_explicit(&estimate->timed_ns, now, memory_order_relaxed);
  uint64_t group = atomic_load_explicit(&estimate->group, memory_order_relaxed), took = now - last;
  if (last == 0 || now <= last || took <= ESTIMATE_LONG_NS) return launches;
  uint64_t most = group * ESTIMATE_LONG_NS / took;
  return most >= launches ? launches : most != 0 ? (uint32_t)most : 1;
}

uint32_t estimate_launch(struct estimate *estimate, uint64_t now) {
  uint32_t launches = varied(estimate, every(atomic_load_explicit(&estimate->ns, memory_order_relaxed)));
  launches = as_they_come(estimate, now, launches);
  atomic_store_explicit(&estimate->group, launches, memory_order_relaxed);
  atomic_store_explicit(&estimate->paid, launches - 1, memory_order_relaxed);
  return launches;
}

static uint64_t moved(uint64_t before, uint64_t elapsed, uint32_t part) {
  return elapsed < before ? before - (before - elapsed) / part : before + (elapsed - before) / part;
}

bool estimate_seems_cut(struct estimate *estimate, uint64_t elapsed_ns, uint64_t debited) {
  bool is_long = elapsed_ns >= ESTIMATE_LONG_NS && debited < ESTIMATE_LONG_NS;
  return !atomic_exchange_explicit(&estimate->was_long, is_long, memory_order_relaxed) && is_long;
}

int64_t estimate_settle(struct estimate *estimate, uint64_t elapsed_ns, bool contended, uint64_t debited,
                        uint32_t launches) {
  uint64_t before = atomic_load_explicit(&estimate->ns, memory_order_relaxed);
  bool was_short = launches != 1 && (elapsed_ns < ESTIMATE_LONG_NS || before == 0);
  uint64_t next = before == 0 ? elapsed_ns : moved(before, elapsed_ns, was_short ? SMOOTH_SHORT : SMOOTH);
  atomic_store_explicit(&estimate->ns, next != 0 ? next : 1, memory_order_relaxed); /* 0 is for unknown */
  if (launches == 1 || was_short) return ((int64_t)elapsed_ns - (int64_t)debited) * (int64_t)launches;
  /* A turn of another process came in between, or it is not short any more: the next ones will tell. */
  return contended ? 0 : (int64_t)elapsed_ns - (int64_t)debited;
}

void estimates_reset(void) {
  memset(table, 0, sizeof table);
  memset(&overflow, 0, sizeof overflow);
}
