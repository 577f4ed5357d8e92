/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation and release. A request that the driver would refuse by its arguments (no place for the address,
 * zero bytes) goes to it uncharged, so that the answer is its own. */
#include "graph_memory.h"
#include "hooks.h"
#include "memory.h"
#include "pools.h"
#include "samples.h"
#include "spill.h"

#define ALLOCATION(symbol, parameters, address, bytes, arguments, otherwise, give_back) \
  CUresult symbol parameters {                                                          \
    struct charge charge;                                                               \
    if (passes_on() || address == NULL || (bytes) == 0) return REAL(symbol) arguments;  \
    if (!memory_reserve(&charge, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;               \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                                \
    if (result != CUDA_SUCCESS) {                                                       \
      otherwise;                                                                        \
      memory_cancel(&charge);                                                           \
      return result;                                                                    \
    }                                                                                   \
    if (memory_commit(&charge, BLOCK_ADDRESS, *address)) return CUDA_SUCCESS;           \
    IN_DRIVER(give_back);                                                               \
    *address = 0;                                                                       \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                    \
  }
#define SPILL \
  if (spills(charge.card, result)) return spill(&charge, address, bytes)

/* CUDA 2's 32-bit addresses have no managed memory. */
ALLOCATION(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned int bytes), address, bytes, (address, bytes), ,
           REAL(cuMemFree)(*address))
ALLOCATION(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), address, bytes, (address, bytes), SPILL,
           REAL(cuMemFree_v2)(*address))
ALLOCATION(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned int flags), address, bytes,
           (address, bytes, flags), , REAL(cuMemFree_v2)(*address))

/* Charged by what the pool reserves. What is recorded in a graph costs nothing before that is launched. */
#define POOL_ALLOCATION(symbol, parameters, begin, per_thread, arguments, free_symbol) \
  CUresult symbol parameters {                                                         \
    struct pool_charge charge;                                                         \
    if (passes_on() || address == NULL || bytes == 0) return REAL(symbol) arguments;   \
    if (stream_captures(stream, per_thread)) {                                         \
      graph_memory_begun();                                                            \
      return REAL(symbol) arguments;                                                   \
    }                                                                                  \
    if (!(begin)) return CUDA_ERROR_OUT_OF_MEMORY;                                     \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                               \
    if (pools_end(&charge, result, result == CUDA_SUCCESS ? *address : 0)) {           \
      if (spills(charge.card, result)) return spill_instead(address, bytes);           \
      return result;                                                                   \
    }                                                                                  \
    IN_DRIVER(REAL(free_symbol)(*address, stream));                                    \
    pools_settle(NULL);                                                                \
    *address = 0;                                                                      \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                   \
  }
#define ASYNC (CUdeviceptr * address, size_t bytes, CUstream stream)
#define FROM_POOL (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream)
#define OF_DEVICE pools_begin_current(&charge, stream, bytes)
#define OF_POOL pools_begin(&charge, pools_by_handle(pool), bytes)
POOL_ALLOCATION(cuMemAllocAsync, ASYNC, OF_DEVICE, false, (address, bytes, stream), cuMemFreeAsync)
POOL_ALLOCATION(cuMemAllocAsync_ptsz, ASYNC, OF_DEVICE, true, (address, bytes, stream), cuMemFreeAsync_ptsz)
POOL_ALLOCATION(cuMemAllocFromPoolAsync, FROM_POOL, OF_POOL, false, (address, bytes, pool, stream),
                cuMemFreeAsync)
POOL_ALLOCATION(cuMemAllocFromPoolAsync_ptsz, FROM_POOL, OF_POOL, true, (address, bytes, pool, stream),
                cuMemFreeAsync_ptsz)

/* The driver chooses the pitch. Reserved is what every card so far takes, a multiple of 512; if it was
   another, the charge follows before the block is handed out. */
#define PITCHED(symbol, free_symbol, otherwise, pointer, number)                                        \
  CUresult symbol(pointer *address, number *pitch, number width, number height, unsigned int element) { \
    struct charge charge;                                                                               \
    uint64_t guess, bytes;                                                                              \
    if (passes_on() || address == NULL || pitch == NULL || width == 0 || height == 0)                   \
      return REAL(symbol)(address, pitch, width, height, element);                                      \
    if (__builtin_add_overflow((uint64_t)width, GRANULE - 1, &guess) ||                                 \
        __builtin_mul_overflow(guess / GRANULE * GRANULE, (uint64_t)height, &guess))                    \
      return CUDA_ERROR_OUT_OF_MEMORY;                                                                  \
    if (!memory_reserve(&charge, guess)) return CUDA_ERROR_OUT_OF_MEMORY;                               \
    CUresult result = IN_DRIVER(REAL(symbol)(address, pitch, width, height, element));                  \
    if (result != CUDA_SUCCESS) {                                                                       \
      otherwise;                                                                                        \
      memory_cancel(&charge);                                                                           \
      return result;                                                                                    \
    }                                                                                                   \
    bool fits = !__builtin_mul_overflow((uint64_t)*pitch, (uint64_t)height, &bytes) &&                  \
                memory_adjust(&charge, bytes);                                                          \
    if (fits && memory_commit(&charge, BLOCK_ADDRESS, *address)) return CUDA_SUCCESS;                   \
    IN_DRIVER(REAL(free_symbol)(*address));                                                             \
    *address = 0;                                                                                       \
    memory_cancel(&charge);                                                                             \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                                    \
  }

#define SPILL_PITCHED                        \
  if (spills(charge.card, result)) {         \
    result = spill(&charge, address, guess); \
    *pitch = guess / height;                 \
    return result;                           \
  }

PITCHED(cuMemAllocPitch, cuMemFree, , CUdeviceptr_v1, unsigned int)
PITCHED(cuMemAllocPitch_v2, cuMemFree_v2, SPILL_PITCHED, CUdeviceptr, size_t)

/* Whichever call frees it; an address that isn't known here is the driver's to judge. A free that is recorded
   in a graph frees nothing yet. */
#define RELEASE(symbol, parameters, address, recorded, arguments, of_spilled)                       \
  CUresult symbol parameters {                                                                      \
    struct block block;                                                                             \
    if (passes_on() || (recorded)) return REAL(symbol) arguments;                                   \
    if (!memory_take(BLOCK_ADDRESS, address, &block)) {                                             \
      graph_memory_freed();                                                                         \
      return REAL(symbol) arguments;                                                                \
    }                                                                                               \
    CUresult result = block.pool == BLOCK_SPILLED ? of_spilled : IN_DRIVER(REAL(symbol) arguments); \
    memory_released(&block, result);                                                                \
    return result;                                                                                  \
  }

RELEASE(cuMemFree, (CUdeviceptr_v1 address), address, false, (address), IN_DRIVER(REAL(cuMemFree)(address)))
RELEASE(cuMemFree_v2, (CUdeviceptr address), address, false, (address),
        IN_DRIVER(REAL(cuMemFree_v2)(address)))
RELEASE(cuMemFreeAsync, (CUdeviceptr address, CUstream stream), address, stream_captures(stream, false),
        (address, stream), spilled_free_async(address, stream, false))
RELEASE(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream), address, stream_captures(stream, true),
        (address, stream), spilled_free_async(address, stream, true))
