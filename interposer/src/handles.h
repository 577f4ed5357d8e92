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

/* Mapped into a sparse array: charged from then on until the process ends. */
void handles_pinned(CUmemHandle handle);

/* In a forked child. */
void handles_reset(void);

#endif
