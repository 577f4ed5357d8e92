/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts of one kind take the same memory of a card: made by the same build of the driver, for as many devices,
 * by the same call with the same flags, under the same settings of CUDA and its tools, as the first of a process.
 * Those that come later in a process share with the first what a process needs once, so they have no kind. */
#ifndef TESSERA_CONTEXT_KIND_H
#define TESSERA_CONTEXT_KIND_H

#include "hooks.h"

/* Of the context that this call is going to make; 0: it is not the process's first. */
uint32_t context_kind(enum hook road, unsigned int flags);

/* In a forked child. */
void context_kind_reset(void);

#endif
