/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools themselves: where they take from, and when they give back. What is imported is the exporter's. */
#include "hooks.h"
#include "pools.h"

CUresult cuMemPoolCreate(CUmemoryPool *pool, const struct cuda_pool_properties *properties) {
  if (passes_on()) return REAL(cuMemPoolCreate)(pool, properties);
  CUresult result = IN_DRIVER(REAL(cuMemPoolCreate)(pool, properties));
  if (result != CUDA_SUCCESS || pools_learn(*pool, &properties->location, true)) return result;
  IN_DRIVER(REAL(cuMemPoolDestroy)(*pool));
  *pool = NULL;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (passes_on()) return REAL(cuMemPoolDestroy)(pool);
  struct pool *held = pools_hold_dying(pool);
  CUresult result = IN_DRIVER(REAL(cuMemPoolDestroy)(pool));
  pools_destroyed(held, result == CUDA_SUCCESS); /* a device that took from it takes from its default again */
  return result;
}

#define SET_POOL(symbol, parameters, device, arguments)                    \
  CUresult symbol parameters {                                             \
    if (passes_on()) return REAL(symbol) arguments;                        \
    struct pool *held = grants_hold() ? pools_hold_current(device) : NULL; \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                   \
    pools_changed_current(held);                                           \
    return result;                                                         \
  }
SET_POOL(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), device, (device, pool))
SET_POOL(cuMemSetMemPool, (const struct cuda_location *location, int type, CUmemoryPool pool),
         location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1,
         (location, type, pool))

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  if (passes_on()) return REAL(cuMemPoolTrimTo)(pool, keep);
  CUresult result = IN_DRIVER(REAL(cuMemPoolTrimTo)(pool, keep));
  if (result == CUDA_SUCCESS) pools_settle(NULL);
  return result;
}

#define POOL_OF_LOCATION(symbol)                                                        \
  CUresult symbol(CUmemoryPool *pool, const struct cuda_location *location, int type) { \
    if (passes_on()) return REAL(symbol)(pool, location, type);                         \
    CUresult result = IN_DRIVER(REAL(symbol)(pool, location, type));                    \
    if (result != CUDA_SUCCESS || pools_learn(*pool, location, false)) return result;   \
    *pool = NULL;                                                                       \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                    \
  }
POOL_OF_LOCATION(cuMemGetDefaultMemPool)
POOL_OF_LOCATION(cuMemGetMemPool)

/* What pools keep above their threshold is given back here (CUDA driver API,
   CU_MEMPOOL_ATTR_RELEASE_THRESHOLD): from now on it is another process's, whether this one ever allocates
   again or not. */
#define SYNCHRONIZE(symbol, parameters, arguments)                         \
  CUresult symbol parameters {                                             \
    CUresult result = REAL(symbol) arguments;                              \
    if (result == CUDA_SUCCESS && !passes_on()) pools_settle_after_wait(); \
    return result;                                                         \
  }
SYNCHRONIZE(cuStreamSynchronize, (CUstream stream), (stream))
SYNCHRONIZE(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SYNCHRONIZE(cuEventSynchronize, (CUevent event), (event))
SYNCHRONIZE(cuCtxSynchronize, (void), ())
SYNCHRONIZE(cuCtxSynchronize_v2, (CUcontext context), (context))
