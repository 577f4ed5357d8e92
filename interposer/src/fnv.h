/* SPDX-License-Identifier: Apache-2.0
 *
 * FNV-1a, by Fowler, Noll and Vo: numbers for texts, where nobody gains by making two alike. */
#ifndef TESSERA_FNV_H
#define TESSERA_FNV_H

#include <stdint.h>

#define FNV_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv_add(uint64_t hash, uint64_t value) {
  return (hash ^ value) * UINT64_C(0x100000001b3);
}

#endif
