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

/* A launch that is free goes on as it came, without a look whether the driver comes back to a hook. */
#define LAUNCH(symbol, parameters, function, blocks, stream, per_thread, arguments)                   \
  CUresult symbol parameters {                                                                        \
    if (inside_driver || throttle_is_free()) return REAL(symbol) arguments;                           \
    if (throttle_is_paid((const void *)(function), blocks)) return IN_DRIVER(REAL(symbol) arguments); \
    struct launch launch = throttle_begin((const void *)(function), blocks, stream, per_thread);      \
    return throttle_end(&launch, IN_DRIVER(REAL(symbol) arguments));                                  \
  }

#endif
