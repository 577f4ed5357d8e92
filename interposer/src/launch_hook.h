/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of a hook that is held back and timed: launches, and copies and fills that are kernels inside. */
#ifndef TESSERA_LAUNCH_HOOK_H
#define TESSERA_LAUNCH_HOOK_H

#include <stdint.h>

#include "hooks.h"
#include "throttle.h"

static inline uint64_t product(uint64_t x, uint64_t y, uint64_t z) {
  uint64_t blocks;
  if (__builtin_mul_overflow(x, y, &blocks) || __builtin_mul_overflow(blocks, z, &blocks)) return UINT64_MAX;
  return blocks;
}

/* A launch that is free goes on as it came, without a look whether the driver comes back to a hook: a jump,
   its arguments where they are. For that to be all, what becomes of any other is a function of its own. */
#define LAUNCH(symbol, parameters, function, blocks, stream, per_thread, arguments)                   \
  static __attribute__((noinline)) CUresult symbol##_limited parameters {                             \
    if (passes_on()) return REAL(symbol) arguments;                                                   \
    if (throttle_is_paid((const void *)(function), blocks)) return IN_DRIVER(REAL(symbol) arguments); \
    struct launch launch = throttle_begin((const void *)(function), blocks, stream, per_thread);      \
    return throttle_end(&launch, IN_DRIVER(REAL(symbol) arguments));                                  \
  }                                                                                                   \
  CUresult symbol parameters {                                                                        \
    bool is_free = inside_driver || throttle_is_free() || grants_are_none();                          \
    function_##symbol *next = is_free ? KNOWN_REAL(symbol) : NULL;                                    \
    if (next == NULL) next = symbol##_limited;                                                        \
    return next arguments;                                                                            \
  }

#endif
