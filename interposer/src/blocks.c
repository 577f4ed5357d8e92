/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash table in shards, each with a lock of its own: linear probing, at most 3/4 full, removal shifts back
 * (no tombstones, so a table that lives for weeks stays as fast as a new one). Memory comes from mmap: a
 * program's own malloc may be anything, and may itself be waiting for us. */
#include "blocks.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "lock.h"

#define SHARDS 64u
#define FIRST_CAPACITY 128u /* a power of two */

struct shard {
  struct lock lock;
  uint32_t used;
  uint32_t capacity; /* a power of two, or 0 before the first block */
  struct block *table;
} __attribute__((aligned(64)));

static struct shard shards[SHARDS];

/* Blocks are aligned to 256 bytes and more: the low bits say nothing. */
static inline uint64_t mix(enum block_kind kind, uint64_t address) {
  uint64_t hash = ((address >> 8 ^ address << 56) + (uint64_t)kind) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

static inline struct shard *shard_of(uint64_t hash) { return &shards[hash % SHARDS]; }

static inline uint32_t home(uint64_t hash, uint32_t capacity) {
  return (uint32_t)(hash / SHARDS) & (capacity - 1);
}

/* The block's place, or the empty one where it would go; `hash` is the block's. */
static inline struct block *find(struct block *table, uint32_t capacity, uint64_t hash, enum block_kind kind,
                                 uint64_t address) {
  uint32_t at = home(hash, capacity);
  while (table[at].address != 0 && (table[at].address != address || table[at].kind != kind))
    at = (at + 1) & (capacity - 1);
  return &table[at];
}

static inline enum block_kind kind_of(const struct block *block) { return (enum block_kind)block->kind; }

static bool grow(struct shard *shard) {
  uint32_t capacity = shard->capacity == 0 ? FIRST_CAPACITY : shard->capacity * 2;
  size_t bytes = (size_t)capacity * sizeof(struct block);
  struct block *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) return false;
  for (uint32_t i = 0; i < shard->capacity; i++) {
    const struct block *block = &shard->table[i];
    uint64_t hash = mix(kind_of(block), block->address);
    if (block->address != 0) *find(table, capacity, hash, kind_of(block), block->address) = *block;
  }
  if (shard->table != NULL) munmap(shard->table, (size_t)shard->capacity * sizeof(struct block));
  shard->table = table;
  shard->capacity = capacity;
  return true;
}

bool blocks_add(const struct block *block, struct block *stale) {
  uint64_t hash = mix(kind_of(block), block->address);
  struct shard *shard = shard_of(hash);
  lock_take(&shard->lock);
  bool room = (uint64_t)shard->used * 4 < (uint64_t)shard->capacity * 3 || grow(shard);
  if (room) {
    struct block *place = find(shard->table, shard->capacity, hash, kind_of(block), block->address);
    *stale = *place;
    if (place->address == 0) shard->used++;
    *place = *block;
  }
  lock_leave(&shard->lock);
  return room;
}

static void remove_at(struct shard *shard, uint32_t hole) {
  uint32_t mask = shard->capacity - 1;
  for (uint32_t at = (hole + 1) & mask; shard->table[at].address != 0; at = (at + 1) & mask) {
    uint32_t wanted = home(mix(kind_of(&shard->table[at]), shard->table[at].address), shard->capacity);
    /* May move back only where its home is not between the hole and itself. */
    if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
    shard->table[hole] = shard->table[at];
    hole = at;
  }
  memset(&shard->table[hole], 0, sizeof shard->table[hole]);
  shard->used--;
}

static inline bool look_up(enum block_kind kind, uint64_t address, struct block *copy, bool take) {
  if (address == 0) return false;
  uint64_t hash = mix(kind, address);
  struct shard *shard = shard_of(hash);
  bool found = false;
  lock_take(&shard->lock);
  if (shard->used != 0) {
    struct block *place = find(shard->table, shard->capacity, hash, kind, address);
    found = place->address == address;
    if (found) *copy = *place;
    if (found && take) remove_at(shard, (uint32_t)(place - shard->table));
  }
  lock_leave(&shard->lock);
  return found;
}

bool blocks_take(enum block_kind kind, uint64_t address, struct block *taken) {
  return look_up(kind, address, taken, true);
}

bool blocks_find(enum block_kind kind, uint64_t address, struct block *found) {
  return look_up(kind, address, found, false);
}

void blocks_hand_over(const void *context, void *into) {
  for (uint32_t i = 0; i < SHARDS; i++) {
    struct shard *shard = &shards[i];
    lock_take(&shard->lock);
    for (uint32_t at = 0; at < shard->capacity; at++)
      if (shard->table[at].address != 0 && shard->table[at].context == context)
        shard->table[at].context = into;
    lock_leave(&shard->lock);
  }
}

void blocks_take_context(const void *context, void (*release)(const struct block *block)) {
  for (uint32_t i = 0; i < SHARDS; i++) {
    struct shard *shard = &shards[i];
    lock_take(&shard->lock);
    for (uint32_t at = 0; at < shard->capacity;) {
      struct block block = shard->table[at];
      if (block.address == 0 || block.context != context) {
        at++;
        continue;
      }
      remove_at(shard, at); /* may move another block here: look again */
      release(&block);
    }
    lock_leave(&shard->lock);
  }
}

/* The tables of the parent are left where they are. */
void blocks_reset(void) { memset(shards, 0, sizeof shards); }
