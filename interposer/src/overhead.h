/* SPDX-License-Identifier: Apache-2.0
 *
 * What contexts and modules take of a card: no call tells, so it is measured around their making, by the
 * driver's own figures. The first context of a grant is measured when it is there; the next ones are reserved
 * by what the last one took, before the driver is asked. What two processes have measured alike for their first
 * context, later ones take over (context_figure.h).
 *
 *   struct overhead overhead;
 *   if (!overhead_begin(&overhead, card, REGION_CONTEXTS, kind)) return CUDA_ERROR_OUT_OF_MEMORY;
 *   result = …create…;
 *   if (!overhead_end(&overhead, result, BLOCK_CONTEXT, context, context)) …destroy it, refuse… */
#ifndef TESSERA_OVERHEAD_H
#define TESSERA_OVERHEAD_H

#include "memory.h"

struct overhead {
  struct card *card; /* NULL: not limited */
  struct charge charge;
  uint64_t free; /* of the card, before; 0: not known */
  uint64_t held; /* by this process's allocations, before */
  uint32_t kind;
  bool taken_over;
  bool by_process;    /* NVML's list of processes is known to work */
  bool may_take_over; /* if others have measured it until it is there */
  bool stays;         /* it can't be given back: charged where there is no room, too. Set by the caller */
};

/* `kind`: of a context (context_kind.h); 0: it is measured in any case. */
bool overhead_begin(struct overhead *overhead, struct card *card, enum region_part part, uint32_t kind);

/* false: over the limit (or no memory for the book-keeping); cancelled, the caller gives it back, unless it
   stays. */
bool overhead_end(struct overhead *overhead, CUresult result, enum block_kind kind, uint64_t number,
                  CUcontext context);

/* Takes the blocks of a library out, one per context that it was loaded in; returns how many. */
#define LIBRARY_CONTEXTS 8
uint32_t overhead_take_library(uint64_t number, struct block blocks[LIBRARY_CONTEXTS]);

/* In a forked child. */
void overhead_reset(void);

#endif
