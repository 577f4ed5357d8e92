/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools themselves: where they take from, and when they give back. What is imported is the exporter's. */
#include "hooks.h"
#include "pools.h"

CUresult cuMemPoolCreate(CUmemoryPool *pool, const struct cuda_pool_properties *properties) {
  if (passes_on()) return REAL(cuMemPoolCreate)(pool, properties);
  CUresult result = IN_DRIVER(REAL(cuMemPoolCreate)(pool, properties));
  if (result == CUDA_SUCCESS) pools_learn(*pool, &properties->location);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (passes_on()) return REAL(cuMemPoolDestroy)(pool);
  CUresult result = IN_DRIVER(REAL(cuMemPoolDestroy)(pool));
  if (result == CUDA_SUCCESS) pools_destroyed(pool);
  pools_forget_current(); /* a device that took from it takes from its default pool again */
  return result;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  CUresult result = REAL(cuDeviceSetMemPool)(device, pool);
  pools_forget_current();
  return result;
}

CUresult cuMemSetMemPool(const struct cuda_location *location, int type, CUmemoryPool pool) {
  CUresult result = REAL(cuMemSetMemPool)(location, type, pool);
  pools_forget_current();
  return result;
}

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
    if (result == CUDA_SUCCESS) pools_learn(*pool, location);                           \
    return result;                                                                      \
  }
POOL_OF_LOCATION(cuMemGetDefaultMemPool)
POOL_OF_LOCATION(cuMemGetMemPool)

/* What pools keep above their threshold is given back here (CUDA driver API,
   CU_MEMPOOL_ATTR_RELEASE_THRESHOLD): from now on it is another process's, whether this one ever allocates
   again or not. */
#define SYNCHRONIZE(symbol, parameters, arguments)                           \
  CUresult symbol parameters {                                               \
    CUresult result = REAL(symbol) arguments;                                \
    if (result == CUDA_SUCCESS && !passes_on()) pools_settle_after_wait();   \
    return result;                                                           \
  }
SYNCHRONIZE(cuStreamSynchronize, (CUstream stream), (stream))
SYNCHRONIZE(cuStreamSynchronize_ptsz, (CUstream stream), (stream))
SYNCHRONIZE(cuEventSynchronize, (CUevent event), (event))
SYNCHRONIZE(cuCtxSynchronize, (void), ())
SYNCHRONIZE(cuCtxSynchronize_v2, (CUcontext context), (context))
