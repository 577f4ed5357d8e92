/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_INVENTORY_H
#define FAKEGPU_INVENTORY_H

#include "state.h"

#include <stdio.h>

/* Reads an inventory (README.md lists the keys) into driver, cards, magic, version and size of a zeroed
 * image. False: `message` says which line and what is wrong with it. */
bool inventory_read(FILE *file, struct state *image, char *message, size_t size);

/* A non-negative number of bytes, with an optional Ki, Mi, Gi, Ti; false where the text is anything else. */
bool read_bytes(const char *text, uint64_t *bytes);

#endif
