/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory by handle (cuMemCreate): charged from its making until neither a handle nor a mapping is
 * left, whichever goes last. What was imported is the exporter's, and unknown here.
 *
 * All functions are called with the lock, which is held over the driver's call as well: a number that the
 * driver takes back may be another thread's the next moment. */
#ifndef TESSERA_HANDLES_H
#define TESSERA_HANDLES_H

#include "cuda_types.h"
#include "memory.h"

void handles_lock(void);
void handles_unlock(void);

/* false: no memory for the book-keeping; the caller gives the handle back and cancels the charge. */
bool handles_made(CUmemHandle handle, const struct charge *charge);

/* Another reference to what lies at the address, under a number that may be new. */
void handles_retained(CUmemHandle handle, CUdeviceptr address);
void handles_released(CUmemHandle handle);

/* false: no memory for the book-keeping; the caller unmaps it again. */
bool handles_mapped(CUmemHandle handle, CUdeviceptr address, uint64_t bytes);
void handles_unmapped(CUdeviceptr address, uint64_t bytes);

/* Another hold on what a handle stands for, as a mapping is; NULL: it isn't known here. */
struct memory;
struct memory *handles_hold(CUmemHandle handle);
void handles_hold_again(struct memory *memory);
void handles_let_go(struct memory *memory);

/* A multicast object, which has no memory of its own. What is bound to it is held until it is unbound, or the
   object has neither a handle nor a mapping any more. */
bool handles_made_multicast(CUmemHandle object); /* false: no memory for the book-keeping */
void handles_bound(CUmemHandle object, uint64_t offset, uint64_t bytes, CUmemHandle handle);
void handles_bound_address(CUmemHandle object, uint64_t offset, uint64_t bytes, CUdeviceptr address);
/* Of the memory of this card. */
void handles_unbound(CUmemHandle object, const struct card *card, uint64_t offset, uint64_t bytes);

/* In a forked child. */
void handles_reset(void);

#endif
