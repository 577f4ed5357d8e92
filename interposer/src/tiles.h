/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is mapped into parts of sparse arrays: held until the part is unmapped, mapped anew, or gone with
 * its array. All functions but the first are called with the lock of the handles. */
#ifndef TESSERA_TILES_H
#define TESSERA_TILES_H

#include <stdbool.h>

#include "cuda_types.h"

/* Whether there are any. */
bool tiles_any(void);

/* What the driver has done. */
void tiles_changed(const struct cuda_array_map *map);

/* An array, or a mipmapped one, is destroyed. */
void tiles_gone(const void *resource);

/* In a forked child. */
void tiles_reset(void);

#endif
