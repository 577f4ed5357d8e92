/* SPDX-License-Identifier: Apache-2.0
 *
 * Three lists under one lock: the memory, the numbers that name it, the places where it is mapped. Numbers
 * and places are found by hashing; programs have thousands of both (PyTorch's expandable segments: one of
 * each per 2 or 20 MiB). */
#include "handles.h"

#include <stdlib.h>
#include <string.h>

#include "lock.h"

#define BUCKETS 4096u

struct memory {
  struct charge charge;
  uint32_t references, mappings;
  bool pinned;
};

/* A number (`key` the handle, `count` its references) or a place (`key` its address). */
struct entry {
  struct entry *next;
  uint64_t key, bytes;
  uint32_t count;
  struct memory *memory;
};

static struct entry *numbers[BUCKETS], *places[BUCKETS];
static struct lock lock;
static _Atomic uint32_t known; /* entries: where there are none, nothing is looked up */

static inline struct entry **bucket(struct entry **table, uint64_t key) {
  uint64_t hash = (key ^ key >> 21) * 0x9E3779B97F4A7C15u;
  return &table[hash >> 52];
}

static struct entry **find(struct entry **table, uint64_t key) {
  struct entry **link = bucket(table, key);
  while (*link != NULL && (*link)->key != key) link = &(*link)->next;
  return link;
}

static struct entry *add(struct entry **table, uint64_t key, uint64_t bytes, struct memory *memory) {
  struct entry *entry = calloc(1, sizeof *entry), **link = bucket(table, key);
  if (entry == NULL) return NULL;
  *entry = (struct entry){.next = *link, .key = key, .bytes = bytes, .count = 1, .memory = memory};
  *link = entry;
  atomic_fetch_add_explicit(&known, 1, memory_order_relaxed);
  return entry;
}

static void drop(struct entry **link) {
  struct entry *gone = *link;
  *link = gone->next;
  free(gone);
  atomic_fetch_sub_explicit(&known, 1, memory_order_relaxed);
}

/* Gives the memory back when nothing is left that holds it. */
static void settle(struct memory *memory) {
  if (memory->references != 0 || memory->mappings != 0 || memory->pinned) return;
  memory_cancel(&memory->charge);
  free(memory);
}

void handles_lock(void) { lock_take(&lock); }
void handles_unlock(void) { lock_leave(&lock); }

static bool none(void) { return atomic_load_explicit(&known, memory_order_relaxed) == 0; }

bool handles_made(CUmemHandle handle, const struct charge *charge) {
  struct memory *memory = calloc(1, sizeof *memory);
  if (memory == NULL) return false;
  *memory = (struct memory){.charge = *charge, .references = 1};
  struct entry *entry = add(numbers, handle, 0, memory);
  if (entry == NULL) free(memory);
  return entry != NULL;
}

/* The mapping that covers the address, which may be inside it. */
static struct entry *place_of(CUdeviceptr address) {
  struct entry *exact = *find(places, address);
  if (exact != NULL) return exact;
  for (uint32_t i = 0; i < BUCKETS; i++)
    for (struct entry *entry = places[i]; entry != NULL; entry = entry->next)
      if (address - entry->key < entry->bytes) return entry;
  return NULL;
}

void handles_retained(CUmemHandle handle, CUdeviceptr address) {
  if (none()) return;
  struct entry *place = place_of(address), *number = *find(numbers, handle);
  if (place != NULL && number != NULL && number->memory == place->memory) {
    number->count++;
    place->memory->references++;
  } else if (place != NULL && number == NULL && add(numbers, handle, 0, place->memory) != NULL) {
    place->memory->references++;
  }
}

void handles_released(CUmemHandle handle) {
  if (none()) return;
  struct entry **link = find(numbers, handle);
  if (*link != NULL) {
    struct memory *memory = (*link)->memory;
    memory->references--;
    if (--(*link)->count == 0) drop(link);
    settle(memory);
  }
}

bool handles_mapped(CUmemHandle handle, CUdeviceptr address, uint64_t bytes) {
  bool kept = true;
  if (none()) return true;
  struct entry *number = *find(numbers, handle);
  if (number != NULL) {
    kept = add(places, address, bytes, number->memory) != NULL;
    if (kept) number->memory->mappings++;
  }
  return kept;
}

static void unmap(struct entry **link) {
  struct memory *memory = (*link)->memory;
  drop(link);
  memory->mappings--;
  settle(memory);
}

/* Mappings follow one another without a gap where all of the range was mapped here; where imported memory
   lies between, the table is gone through. */
void handles_unmapped(CUdeviceptr address, uint64_t bytes) {
  if (none()) return;
  uint64_t at = 0;
  while (at < bytes) {
    struct entry **link = find(places, address + at);
    if (*link == NULL) break;
    at += (*link)->bytes;
    unmap(link);
  }
  for (uint32_t i = 0; at < bytes && i < BUCKETS; i++)
    for (struct entry **link = &places[i]; *link != NULL;)
      if ((*link)->key - address < bytes)
        unmap(link);
      else
        link = &(*link)->next;
}

void handles_pinned(CUmemHandle handle) {
  if (none()) return;
  struct entry *number = *find(numbers, handle);
  if (number != NULL) number->memory->pinned = true;
}

/* The parent's entries are left where they are. */
void handles_reset(void) {
  memset(numbers, 0, sizeof numbers);
  memset(places, 0, sizeof places);
  atomic_store_explicit(&known, 0, memory_order_relaxed);
  lock.word = 0;
}
