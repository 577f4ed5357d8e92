/* SPDX-License-Identifier: Apache-2.0
 *
 * Three lists under one lock: the memory, the numbers that name it, the places where it is mapped. Numbers
 * and places are found by hashing; programs have thousands of both (PyTorch's expandable segments: one of
 * each per 2 or 20 MiB). Other holds are counted like mappings: parts of sparse arrays (tiles.c), and what is
 * bound to a multicast object, which is a memory itself, of no size. */
#include "handles.h"

#include <stdlib.h>
#include <string.h>

#include "lock.h"

#define BUCKETS 4096u

struct bound {
  struct bound *next;
  uint64_t offset, bytes;
  struct memory *memory;
};

struct memory {
  struct charge charge;
  uint32_t references, mappings;
  struct bound *bound; /* to this multicast object */
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

static void unbind(struct bound **link);

/* Gives the memory back when nothing is left that holds it. */
static void settle(struct memory *memory) {
  if (memory->references != 0 || memory->mappings != 0) return;
  while (memory->bound != NULL) unbind(&memory->bound);
  memory_cancel(&memory->charge);
  free(memory);
}

void handles_let_go(struct memory *memory) {
  memory->mappings--;
  settle(memory);
}

static void unbind(struct bound **link) {
  struct bound *gone = *link;
  struct memory *memory = gone->memory;
  *link = gone->next;
  free(gone);
  handles_let_go(memory); /* no multicast object is bound to another: this goes no deeper */
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
  handles_let_go(memory);
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

void handles_hold_again(struct memory *memory) { memory->mappings++; }

struct memory *handles_hold(CUmemHandle handle) {
  struct entry *number = none() ? NULL : *find(numbers, handle);
  if (number == NULL) return NULL;
  handles_hold_again(number->memory);
  return number->memory;
}

bool handles_made_multicast(CUmemHandle object) {
  struct charge nothing = {0};
  return handles_made(object, &nothing);
}

/* Without memory for the book-keeping it is held for ever: too much, never too little. */
static void bind(CUmemHandle object, uint64_t offset, uint64_t bytes, struct memory *memory) {
  struct entry *number = *find(numbers, object);
  if (number == NULL || memory == NULL) return;
  struct bound *made = calloc(1, sizeof *made);
  handles_hold_again(memory);
  if (made == NULL) return;
  *made =
      (struct bound){.next = number->memory->bound, .offset = offset, .bytes = bytes, .memory = memory};
  number->memory->bound = made;
}

void handles_bound(CUmemHandle object, uint64_t offset, uint64_t bytes, CUmemHandle handle) {
  struct entry *number = none() ? NULL : *find(numbers, handle);
  bind(object, offset, bytes, number == NULL ? NULL : number->memory);
}

void handles_bound_address(CUmemHandle object, uint64_t offset, uint64_t bytes, CUdeviceptr address) {
  struct entry *place = none() ? NULL : place_of(address);
  bind(object, offset, bytes, place == NULL ? NULL : place->memory);
}

static bool is_of_card(const struct memory *memory, const struct card *card) {
  return card != NULL && card == memory->charge.card;
}

void handles_unbound(CUmemHandle object, const struct card *card, uint64_t offset, uint64_t bytes) {
  struct entry *number = none() ? NULL : *find(numbers, object);
  if (number == NULL) return;
  for (struct bound **link = &number->memory->bound; *link != NULL;)
    if ((*link)->offset - offset < bytes && is_of_card((*link)->memory, card))
      unbind(link);
    else
      link = &(*link)->next;
}

/* The parent's entries are left where they are. */
void handles_reset(void) {
  memset(numbers, 0, sizeof numbers);
  memset(places, 0, sizeof places);
  atomic_store_explicit(&known, 0, memory_order_relaxed);
  lock.word = 0;
}
