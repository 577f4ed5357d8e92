/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits file's sequence lock, both ends. */
#ifndef TESSERA_LIMITS_H
#define TESSERA_LIMITS_H

#include <stdbool.h>

#include "tessera_abi.h"

/* A consistent copy. false: the writer was in the middle for longer than the tries last (or died there);
   `copy` is then what was seen last, still of valid fields, perhaps of two different writes. */
bool limits_read(const struct tessera_limits *shared, struct tessera_limits *copy);

/* Replaces what may change while the file is mapped: all but magic, version and size. One writer at a time */
void limits_write(struct tessera_limits *shared, const struct tessera_limits *value);

/* Whether magic, version and size are such that this code may read the struct out of `bytes` bytes of file */
bool limits_valid(const struct tessera_limits *shared, uint64_t bytes);

/* Percent of the card in force by policy; 0: not throttled. */
uint32_t limits_cores(const struct tessera_limits *shared);

#endif
