/* SPDX-License-Identifier: Apache-2.0
 *
 * Device addresses of this process: one large reservation far from the host's mappings, divided into one
 * region per size class (four classes an octave) of equal cells. An address names its region and cell, so
 * allocating, freeing and finding a block from an inner pointer are all O(1), whatever the number of live
 * blocks.
 *
 * Pages are inaccessible, as device memory is, until a copy opens them; only what is touched takes host
 * memory.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BASE ((void *)(uintptr_t)0x200000000000ull)
#define SMALLEST_SHIFT 9u /* 512 bytes, CUDA's own alignment */
#define OCTAVES 30ull     /* up to 512 GiB */
#define CLASSES (OCTAVES * 4u)
#define CHUNK 256u
#define PAGE 4096ull
#define OPEN_UNIT (2ull << 20) /* pages are opened in such units, to keep the number of mappings small */

struct region {
  uint64_t cell_bytes;
  CUdeviceptr base;
  uint32_t cells;      /* used so far */
  uint32_t first_free; /* cell + 1 */
  uint32_t chunk_count;
  struct block **chunks;
};

static struct region regions[CLASSES];
static CUdeviceptr reservation;
static uint64_t region_bytes;
static uint64_t blocks_made;

static bool reserve(void) {
  for (uint64_t size = 1ull << 38; size >= 1ull << 28; size >>= 1) {
    void *found = mmap(BASE, size * CLASSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) continue; /* RLIMIT_AS: make do with less */
    reservation = (CUdeviceptr)(uintptr_t)found;
    region_bytes = size;
    break;
  }
  for (unsigned class = 0; class < CLASSES; class ++) {
    uint64_t step = 1ull << (SMALLEST_SHIFT + class / 4u);
    uint64_t bytes = step + step / 4u * (class % 4u);
    regions[class].cell_bytes = (bytes + 511u) / 512u * 512u;
    regions[class].base = reservation + class * region_bytes;
  }
  return reservation != 0;
}

static unsigned class_of(uint64_t bytes) {
  unsigned class = 0;
  unsigned bits = 63u - (unsigned)__builtin_clzll(bytes | 1u);
  if (bits > SMALLEST_SHIFT) class = (bits - SMALLEST_SHIFT) * 4u;
  while (class < CLASSES && regions[class].cell_bytes < bytes) class ++;
  return class;
}

static struct block *cell_at(const struct region *region, uint32_t cell) {
  return &region->chunks[cell / CHUNK][cell % CHUNK];
}

static bool grow(struct region *region) {
  struct block **chunks = realloc(region->chunks, (region->chunk_count + 1u) * sizeof *chunks);
  if (chunks == NULL) return false;
  region->chunks = chunks;
  struct block *chunk = calloc(CHUNK, sizeof *chunk);
  if (chunk == NULL) return false;
  region->chunks[region->chunk_count++] = chunk;
  return true;
}

static struct block *cell_take(struct region *region) {
  if (region->first_free != 0) {
    struct block *block = cell_at(region, region->first_free - 1u);
    region->first_free = block->next_free;
    return block;
  }
  if ((region->cells + 1ull) * region->cell_bytes > region_bytes) return NULL;
  if (region->cells == region->chunk_count * CHUNK && !grow(region)) return NULL;
  struct block *block = cell_at(region, region->cells);
  block->base = region->base + region->cells * region->cell_bytes;
  region->cells++;
  return block;
}

struct block *address_take(uint64_t bytes, bool whole_pages) {
  if (reservation == 0 && !reserve()) return NULL;
  /* From 16 KiB on all cells are whole pages. */
  unsigned class = class_of(whole_pages && bytes < 4 * PAGE ? 4 * PAGE : bytes);
  struct block *block = class < CLASSES ? cell_take(&regions[class]) : NULL;
  if (block == NULL) return NULL;
  *block = (struct block){.base = block->base, .bytes = bytes, .id = ++blocks_made};
  return block;
}

struct block *address_find(CUdeviceptr address) {
  if (reservation == 0 || address < reservation || address - reservation >= region_bytes * CLASSES)
    return address >> 32 == 0 ? low_find(address) : mapping_find(address);
  const struct region *region = &regions[(address - reservation) / region_bytes];
  uint64_t cell = (address - region->base) / region->cell_bytes;
  if (cell >= region->cells) return NULL;
  struct block *block = cell_at(region, (uint32_t)cell);
  return block->kind != BLOCK_FREE && address - block->base < block->bytes ? block : NULL;
}

uint64_t shared_bytes(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

void pages_clear(CUdeviceptr base, uint64_t bytes) {
  void *start = (void *)(uintptr_t)base;  // NOLINT(performance-no-int-to-ptr)
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(start, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) mprotect(start, bytes, PROT_NONE);
}

/* What was mapped over a block's pages makes room for empty ones again. */
static void unmap_file(struct block *block) {
  pages_clear(block->base, shared_bytes(block->bytes));
  close(block->file - 1);
  block->file = 0;
}

void address_drop(struct block *block) {
  if (low_drop(block)) return;
  struct region *region = &regions[(block->base - reservation) / region_bytes];
  if (block->file != 0) {
    unmap_file(block);
  } else if (block->readable) {
    CUdeviceptr first = (block->base + PAGE - 1) / PAGE * PAGE,
                end = (block->base + block->bytes) / PAGE * PAGE;
    if (block->bytes % PAGE != 0 && region->cell_bytes % PAGE == 0) end += PAGE;
    if (end > first)
      madvise((void *)(uintptr_t)first, end - first, MADV_DONTNEED);  // NOLINT(performance-no-int-to-ptr)
  }
  block->kind = BLOCK_FREE;
  block->readable = false;
  block->next_free = region->first_free;
  region->first_free = (uint32_t)((block->base - region->base) / region->cell_bytes) + 1u;
}

void address_each(void (*visit)(struct block *block, void *argument), void *argument) {
  for (unsigned class = 0; class < CLASSES; class ++)
    for (uint32_t cell = 0; cell < regions[class].cells; cell++) {
      struct block *block = cell_at(&regions[class], cell);
      if (block->kind != BLOCK_FREE) visit(block, argument);
    }
  low_each(visit, argument);
}

bool address_open(struct block *block) {
  if (block->kind == BLOCK_RESERVED) return false; /* of a graph that is not running */
  if (block->readable) return true;
  if (block->kind == BLOCK_MAPPED) return false; /* cuMemSetAccess decides */
  CUdeviceptr first = block->base / OPEN_UNIT * OPEN_UNIT;
  CUdeviceptr end = (block->base + block->bytes + OPEN_UNIT - 1) / OPEN_UNIT * OPEN_UNIT;
  if (block->base >> 32 == 0) { /* alone in its pages */
    first = block->base;
    end = block->base + shared_bytes(block->bytes);
  } else {
    if (first < reservation) first = reservation;
    if (end > reservation + region_bytes * CLASSES) end = reservation + region_bytes * CLASSES;
  }
  void *start = (void *)(uintptr_t)first;  // NOLINT(performance-no-int-to-ptr)
  block->readable = mprotect(start, end - first, PROT_READ | PROT_WRITE) == 0;
  return block->readable;
}
