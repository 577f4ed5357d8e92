/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the grant has room and the card has none, since the node promises more memory than its cards have:
 * managed memory instead, which the driver keeps on the host and moves to the card where it has room. Only
 * where the limits say so (TESSERA_FLAG_SPILL); else the driver's refusal is the answer. What needs memory of
 * the card itself (handles, arrays, graphs, contexts, modules) is refused always. */
#ifndef TESSERA_SPILL_H
#define TESSERA_SPILL_H

#include "memory.h"

/* Whether an allocation of this card goes on in managed memory after this answer of the driver. */
static inline bool spills(const struct card *card, CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY && card != NULL && card_spills(card);
}

/* Of the calling thread's context, for what was reserved. The charge is committed, or cancelled. */
CUresult spill(struct charge *charge, CUdeviceptr *address, uint64_t bytes);

/* The same where nothing is reserved yet. */
CUresult spill_instead(CUdeviceptr *address, uint64_t bytes);

/* A spilled block in stream order: the driver frees managed memory at once, so the stream is waited for. */
CUresult spilled_free_async(CUdeviceptr address, CUstream stream, bool per_thread);

#endif
