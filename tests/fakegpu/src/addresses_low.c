/* SPDX-License-Identifier: Apache-2.0
 *
 * Device addresses below 4 GiB, for the calls of CUDA 2, whose addresses have 32 bits. A list: such programs
 * have few blocks. What is found here may as well be registered host memory, which lies anywhere.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

#define FIRST 0x20000000ull /* programs and their heaps lie lower or far higher */
#define END 0xf0000000ull
#define STEP (16ull << 20)
#define FIRST_ID (UINT64_MAX / 2) /* ids of other blocks are counted from 1 up or from UINT64_MAX down */

struct low {
  struct low *next;
  struct block block;
};

static struct low *lows;
static uint64_t lows_made;

/* Pages of the host's that nothing lies in; 0: there are none left. */
static CUdeviceptr reserve(uint64_t bytes) {
  for (CUdeviceptr wish = FIRST; wish + bytes <= END; wish += STEP) {
    void *hint = (void *)(uintptr_t)wish;  // NOLINT(performance-no-int-to-ptr)
    void *found = mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return 0;
    if (found == hint) return wish;
    munmap(found, bytes);
  }
  return 0;
}

struct block *low_take(uint64_t bytes) {
  struct low *made = bytes < END ? calloc(1, sizeof *made) : NULL;
  CUdeviceptr base = made == NULL ? 0 : reserve(shared_bytes(bytes));
  if (base == 0) {
    free(made);
    return NULL;
  }
  made->block = (struct block){.base = base, .bytes = bytes, .id = FIRST_ID + ++lows_made};
  made->next = lows;
  lows = made;
  return &made->block;
}

struct block *low_find(CUdeviceptr address) {
  for (struct low *low = lows; low != NULL; low = low->next)
    if (address - low->block.base < low->block.bytes) return &low->block;
  return mapping_find(address);
}

bool low_drop(struct block *block) {
  for (struct low **link = &lows; *link != NULL; link = &(*link)->next) {
    struct low *low = *link;
    if (&low->block != block) continue;
    void *pages = (void *)(uintptr_t)block->base;  // NOLINT(performance-no-int-to-ptr)
    munmap(pages, shared_bytes(block->bytes));
    *link = low->next;
    free(low);
    return true;
  }
  return false;
}

void low_each(void (*visit)(struct block *block, void *argument), void *argument) {
  for (struct low *low = lows, *next = NULL; low != NULL; low = next) {
    next = low->next; /* the visitor may drop it */
    visit(&low->block, argument);
  }
}
