/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory: what a handle stands for is charged to the card that its properties name, whatever context
 * is current, until the last handle and the last mapping are gone. Reserved addresses cost nothing. */
#include "handles.h"
#include "hooks.h"
#include "memory.h"
#include "tiles.h"

CUresult cuMemCreate(CUmemHandle *handle, size_t bytes, const struct cuda_allocation *properties,
                     unsigned long long flags) {
  struct charge charge = {0};
  bool on_card = properties != NULL && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  struct card *card =
      on_card && handle != NULL && bytes != 0 ? card_of_device(properties->location.id) : NULL;
  if (passes_on() || card == NULL) return REAL(cuMemCreate)(handle, bytes, properties, flags);
  if (!memory_reserve_for(&charge, card, REGION_MEMORY, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  handles_lock();
  CUresult result = IN_DRIVER(REAL(cuMemCreate)(handle, bytes, properties, flags));
  bool kept = result == CUDA_SUCCESS && handles_made(*handle, &charge);
  if (result == CUDA_SUCCESS && !kept) {
    IN_DRIVER(REAL(cuMemRelease)(*handle));
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  handles_unlock();
  if (!kept) memory_cancel(&charge);
  return result;
}

CUresult cuMemRelease(CUmemHandle handle) {
  if (passes_on()) return REAL(cuMemRelease)(handle);
  handles_lock();
  CUresult result = IN_DRIVER(REAL(cuMemRelease)(handle));
  if (result == CUDA_SUCCESS) handles_released(handle);
  handles_unlock();
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemHandle *handle, void *address) {
  if (passes_on()) return REAL(cuMemRetainAllocationHandle)(handle, address);
  handles_lock();
  CUresult result = IN_DRIVER(REAL(cuMemRetainAllocationHandle)(handle, address));
  if (result == CUDA_SUCCESS) handles_retained(*handle, (CUdeviceptr)(uintptr_t)address);
  handles_unlock();
  return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle,
                  unsigned long long flags) {
  if (passes_on()) return REAL(cuMemMap)(address, bytes, offset, handle, flags);
  handles_lock();
  CUresult result = IN_DRIVER(REAL(cuMemMap)(address, bytes, offset, handle, flags));
  if (result == CUDA_SUCCESS && !handles_mapped(handle, address, bytes)) {
    IN_DRIVER(REAL(cuMemUnmap)(address, bytes));
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  handles_unlock();
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (passes_on()) return REAL(cuMemUnmap)(address, bytes);
  handles_lock();
  CUresult result = IN_DRIVER(REAL(cuMemUnmap)(address, bytes));
  if (result == CUDA_SUCCESS) handles_unmapped(address, bytes);
  handles_unlock();
  return result;
}

/* What is unmapped is free when the stream has got there. */
#define MAP_ARRAYS(symbol, wait)                                                                          \
  CUresult symbol(struct cuda_array_map *maps, unsigned int count, CUstream stream) {                     \
    bool unmaps = false;                                                                                  \
    if (passes_on()) return REAL(symbol)(maps, count, stream);                                            \
    CUresult result = IN_DRIVER(REAL(symbol)(maps, count, stream));                                       \
    if (result != CUDA_SUCCESS) return result;                                                            \
    for (unsigned int i = 0; i < count; i++)                                                              \
      unmaps = unmaps || maps[i].operation != CU_MEM_OPERATION_TYPE_MAP;                                  \
    if (unmaps) IN_DRIVER(REAL(wait)(stream));                                                            \
    handles_lock();                                                                                       \
    for (unsigned int i = 0; i < count; i++) tiles_changed(&maps[i]);                                     \
    handles_unlock();                                                                                     \
    return result;                                                                                        \
  }
MAP_ARRAYS(cuMemMapArrayAsync, cuStreamSynchronize)
MAP_ARRAYS(cuMemMapArrayAsync_ptsz, cuStreamSynchronize_ptsz)

CUresult cuMulticastCreate(CUmemHandle *object, const void *properties) {
  if (passes_on()) return REAL(cuMulticastCreate)(object, properties);
  handles_lock();
  CUresult result = IN_DRIVER(REAL(cuMulticastCreate)(object, properties));
  if (result == CUDA_SUCCESS && !handles_made_multicast(*object)) {
    IN_DRIVER(REAL(cuMemRelease)(*object));
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  handles_unlock();
  return result;
}

#define BIND(symbol, parameters, arguments, note)        \
  CUresult symbol parameters {                           \
    if (passes_on()) return REAL(symbol) arguments;      \
    handles_lock();                                      \
    CUresult result = IN_DRIVER(REAL(symbol) arguments); \
    if (result == CUDA_SUCCESS) note;                    \
    handles_unlock();                                    \
    return result;                                       \
  }
BIND(cuMulticastBindMem,
     (CUmemHandle object, size_t offset, CUmemHandle memory, size_t within, size_t bytes,
      unsigned long long flags),
     (object, offset, memory, within, bytes, flags), handles_bound(object, offset, bytes, memory))
BIND(cuMulticastBindMem_v2,
     (CUmemHandle object, CUdevice device, size_t offset, CUmemHandle memory, size_t within, size_t bytes,
      unsigned long long flags),
     (object, device, offset, memory, within, bytes, flags), handles_bound(object, offset, bytes, memory))
BIND(cuMulticastBindAddr,
     (CUmemHandle object, size_t offset, CUdeviceptr address, size_t bytes, unsigned long long flags),
     (object, offset, address, bytes, flags), handles_bound_address(object, offset, bytes, address))
BIND(cuMulticastBindAddr_v2,
     (CUmemHandle object, CUdevice device, size_t offset, CUdeviceptr address, size_t bytes,
      unsigned long long flags),
     (object, device, offset, address, bytes, flags), handles_bound_address(object, offset, bytes, address))
BIND(cuMulticastUnbind, (CUmemHandle object, CUdevice device, size_t offset, size_t bytes),
     (object, device, offset, bytes), handles_unbound(object, card_of_device(device), offset, bytes))
