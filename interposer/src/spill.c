/* SPDX-License-Identifier: Apache-2.0 */
#include "spill.h"

#include "hooks.h"

CUresult spill(struct charge *charge, CUdeviceptr *address, uint64_t bytes) {
  CUdeviceptr managed = 0;
  CUresult result = IN_DRIVER(REAL(cuMemAllocManaged)(&managed, bytes, CU_MEM_ATTACH_GLOBAL));
  if (result != CUDA_SUCCESS) {
    memory_cancel(charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (memory_commit_spilled(charge, managed)) {
    *address = managed;
    return CUDA_SUCCESS;
  }
  IN_DRIVER(REAL(cuMemFree_v2)(managed));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult spill_instead(CUdeviceptr *address, uint64_t bytes) {
  struct charge charge;
  if (!memory_reserve(&charge, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  return spill(&charge, address, bytes);
}

CUresult spilled_free_async(CUdeviceptr address, CUstream stream, bool per_thread) {
  CUresult result = per_thread ? IN_DRIVER(REAL(cuStreamSynchronize_ptsz)(stream))
                               : IN_DRIVER(REAL(cuStreamSynchronize)(stream));
  return result == CUDA_SUCCESS ? IN_DRIVER(REAL(cuMemFree_v2)(address)) : result;
}
