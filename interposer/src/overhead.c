/* SPDX-License-Identifier: Apache-2.0
 *
 * Two figures serve. NVML's of this process, less what is known of its allocations and of what was measured
 * before, is right whatever the neighbours do; but where NVML shows no processes (or not this one), the
 * card's free memory before and after must do, and what a neighbour took meanwhile is then taken for ours.
 *
 * Allocations are reserved before the driver makes them and released after it has freed them, so what is
 * known of them is never less than what the driver counts: under other threads' allocations the figure may be
 * too small, never too large; the next one makes up for it. */
#include "overhead.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atomics.h"
#include "context_figure.h"
#include "hooks.h"

#define LEAST_PROCESSES 64u
#define TRIES 5
/* Bigger than any module: then it was somebody else's. */
#define MOST_BY_FREE_MEMORY (UINT64_C(2) << 30)

static struct lock starting, committing;
static atomic_int nvml_state; /* 0: not tried, 1: usable, 2: not there */

static bool nvml_usable(void) {
  int state = atomic_load_explicit(&nvml_state, memory_order_acquire);
  if (state != 0) return state == 1;
  lock_take(&starting);
  state = atomic_load_explicit(&nvml_state, memory_order_relaxed);
  if (state == 0) {
    state = NVML(nvmlInit_v2)() == NVML_SUCCESS ? 1 : 2;
    atomic_store_explicit(&nvml_state, state, memory_order_release);
  }
  lock_leave(&starting);
  return state == 1;
}

static bool device_of(const struct card *card, nvmlDevice_t *device) {
  char uuid[TESSERA_UUID_SIZE + 1] = {0};
  if (!nvml_usable()) return false;
  memcpy(uuid, card->grants[0]->limits->uuid, TESSERA_UUID_SIZE);
  return NVML(nvmlDeviceGetHandleByUUID)(uuid, device) == NVML_SUCCESS;
}

/* Bytes of the card that this process holds, as NVML counts; false: it does not say. */
static bool own_bytes(const struct card *card, uint64_t *bytes) {
  nvmlDevice_t device;
  bool found = false;
  if (!device_of(card, &device)) return false;
  nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
  unsigned int capacity = LEAST_PROCESSES, count = 0;
  struct nvml_process_v2 *list = NULL;
  for (int try = 0; try < TRIES && result == NVML_ERROR_INSUFFICIENT_SIZE; try++) {
    free(list);
    list = calloc(capacity, sizeof *list);
    if (list == NULL) return false;
    count = capacity;
    result = REAL_NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, list);
    capacity = count + LEAST_PROCESSES;
  }
  for (unsigned int i = 0; result == NVML_SUCCESS && i < count && !found; i++) {
    found = list[i].pid == (unsigned int)getpid() && list[i].memory != UINT64_MAX;
    *bytes = list[i].memory;
  }
  free(list);
  return found;
}

/* The card's free memory; 0: not known. */
static uint64_t free_bytes(const struct card *card, enum region_part part) {
  nvmlDevice_t device;
  struct nvml_memory memory = {0};
  size_t available = 0, total;
  if (part == REGION_MODULES) /* in a context; costs less than NVML */
    return REAL(cuMemGetInfo_v2)(&available, &total) == CUDA_SUCCESS ? available : 0;
  if (!device_of(card, &device)) return 0;
  return REAL_NVML(nvmlDeviceGetMemoryInfo)(device, &memory) == NVML_SUCCESS ? memory.free : 0;
}

static uint64_t held_for(const struct card *card, enum region_part part) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < card->count; i++)
    sum += atomic_load_explicit(&card->grants[i]->region.held[part], memory_order_relaxed);
  return sum;
}

static uint64_t *figure_of(const struct card *card) { return &card->grants[0]->region.usage->context_figure; }

/* What is to be reserved, and whether that is all that there is to know. */
static uint64_t expect_context(struct overhead *overhead) {
  uint64_t bytes, *word = figure_of(overhead->card);
  struct context_figure figure = context_figure_read(word, overhead->kind);
  overhead->may_take_over = overhead->kind != 0 && !figure.believed;
  overhead->by_process = figure.by_process;
  if (figure.believed && context_figure_take(word, overhead->kind, &bytes)) {
    overhead->taken_over = true;
    return bytes;
  }
  return figure.known ? figure.bytes : load_relaxed(&overhead->card->grants[0]->region.usage->context_bytes);
}

bool overhead_begin(struct overhead *overhead, struct card *card, enum region_part part, uint32_t kind) {
  *overhead = (struct overhead){.card = card, .kind = kind};
  if (card == NULL) return true;
  uint64_t expected = part == REGION_CONTEXTS ? expect_context(overhead) : 0;
  if (!memory_reserve_for(&overhead->charge, card, part, expected)) return false;
  if (overhead->taken_over) return true;
  /* Where NVML has told a figure by its process, it will again. */
  if (!overhead->by_process) overhead->free = free_bytes(card, part);
  overhead->held = held_for(card, REGION_MEMORY);
  return true;
}

/* By the process's own figure: all that is neither an allocation nor was measured before. */
static bool measured_by_process(const struct overhead *overhead, uint64_t *bytes) {
  for (int try = 0; try < TRIES; try++) {
    uint64_t own = 0, held = held_for(overhead->card, REGION_MEMORY);
    if (!own_bytes(overhead->card, &own)) return false;
    uint64_t known = held + held_for(overhead->card, REGION_CONTEXTS) +
                     held_for(overhead->card, REGION_MODULES) - overhead->charge.bytes;
    *bytes = own > known ? own - known : 0;
    if (held == held_for(overhead->card, REGION_MEMORY)) break;
  }
  return true;
}

static bool measured(const struct overhead *overhead, uint64_t *bytes, bool *by_process) {
  enum region_part part = overhead->charge.part;
  uint64_t now = part == REGION_MODULES ? free_bytes(overhead->card, part) : 0;
  if (part == REGION_MODULES && now == overhead->free) {
    *bytes = 0;
    return true;
  }
  *by_process = measured_by_process(overhead, bytes);
  if (*by_process) return true;
  if (part == REGION_CONTEXTS) now = free_bytes(overhead->card, part);
  if (overhead->free == 0 || now == 0) return false;
  uint64_t held = held_for(overhead->card, REGION_MEMORY);
  uint64_t taken = overhead->free > now ? overhead->free - now : 0;
  uint64_t allocated = held > overhead->held ? held - overhead->held : 0;
  *bytes = taken > allocated ? taken - allocated : 0;
  return *bytes <= MOST_BY_FREE_MEMORY;
}

/* Measured, or known from others of its kind. */
static bool found_out(const struct overhead *overhead, uint64_t *bytes) {
  uint64_t *word = figure_of(overhead->card);
  uint32_t kind = overhead->kind;
  bool by_process = false;
  if (overhead->may_take_over && context_figure_take(word, kind, bytes)) return true;
  if (measured(overhead, bytes, &by_process)) {
    if (kind != 0) *bytes = context_figure_measured(word, kind, *bytes, by_process);
    return true;
  }
  struct context_figure figure = context_figure_read(word, kind);
  if (kind == 0 || !figure.known) return false;
  context_figure_doubt(word, kind);
  *bytes = figure.bytes;
  return true;
}

/* A library is loaded in each context that uses it: as many blocks, told by the low bits, which a handle leaves
   free. 0: there are too many; that one's charge stays until the process ends. */
static uint64_t number_in(uint64_t library, const void *context) {
  struct block block;
  for (uint64_t i = 0; i < LIBRARY_CONTEXTS; i++)
    if (!blocks_find(BLOCK_LIBRARY, library | i, &block) || block.context == context) return library | i;
  return 0;
}

uint32_t overhead_take_library(uint64_t number, struct block blocks[LIBRARY_CONTEXTS]) {
  uint32_t count = 0;
  for (uint64_t i = 0; i < LIBRARY_CONTEXTS; i++)
    if (memory_take(BLOCK_LIBRARY, number | i, &blocks[count])) count++;
  return count;
}

/* What the same handle took before in the same context is one block with it. */
static bool commit(struct charge *charge, enum block_kind kind, uint64_t number) {
  struct block before;
  lock_take(&committing);
  if (kind == BLOCK_LIBRARY) number = number_in(number, charge->context);
  if (blocks_find(kind, number, &before) && before.context == charge->context &&
      blocks_take(kind, number, &before))
    charge->bytes += before.bytes;
  bool done = number == 0 || memory_commit(charge, kind, number);
  lock_leave(&committing);
  return done;
}

bool overhead_end(struct overhead *overhead, CUresult result, enum block_kind kind, uint64_t number,
                  CUcontext context) {
  struct charge *charge = &overhead->charge;
  uint64_t bytes = 0;
  bool fits = true;
  if (overhead->card == NULL) return true;
  if (result != CUDA_SUCCESS) {
    memory_cancel(charge);
    return true;
  }
  charge->context = context;
  if (!overhead->taken_over && found_out(overhead, &bytes)) {
    if (charge->part == REGION_CONTEXTS)
      store_relaxed(&overhead->card->grants[0]->region.usage->context_bytes, memory_rounded(bytes));
    fits = memory_adjust(charge, bytes);
    if (!fits && !overhead->stays) memory_cancel(charge);
    if (!fits && !overhead->stays) return false;
    if (!fits) memory_hold(charge, bytes);
  }
  if (charge->bytes == 0) return fits;
  return commit(charge, kind, number) && fits;
}

void overhead_reset(void) {
  starting.word = 0;
  committing.word = 0;
  atomic_store_explicit(&nvml_state, 0, memory_order_relaxed);
}
