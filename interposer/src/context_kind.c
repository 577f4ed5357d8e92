/* SPDX-License-Identifier: Apache-2.0 */
#include "context_kind.h"

#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "context_figure.h"
#include "fnv.h"

static atomic_bool has_context;

/* What CUDA, its debuggers and its tools are told by the environment, in any order. */
static uint64_t hashed_environment(void) {
  uint64_t sum = 0;
  for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
    const char *text = *variable;
    if ((text[0] != 'C' || text[1] != 'U') && (text[0] != 'N' || text[1] != 'V')) continue;
    uint64_t hash = FNV_START;
    for (; *text != '\0'; text++) hash = fnv_add(hash, (unsigned char)*text);
    sum += hash;
  }
  return sum;
}

uint32_t context_kind(enum hook road, unsigned int flags) {
  int version = 0, devices = 0;
  if (atomic_exchange_explicit(&has_context, true, memory_order_relaxed)) return 0;
  DRIVER(cuDriverGetVersion)(&version);
  DRIVER(cuDeviceGetCount)(&devices);
  uint64_t hash = fnv_add(fnv_add(FNV_START, (uint64_t)road), flags);
  hash = fnv_add(fnv_add(hash, (uint64_t)version), (uint64_t)devices);
  hash = fnv_add(fnv_add(hash, driver_build()), hashed_environment());
  uint32_t kind = (uint32_t)(hash >> 32) & ((1u << CONTEXT_KIND_BITS) - 1);
  return kind == 0 ? 1 : kind;
}

void context_kind_reset(void) { atomic_store_explicit(&has_context, false, memory_order_relaxed); }
