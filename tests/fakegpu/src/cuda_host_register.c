/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory of the program's own that is registered with the driver: known as the driver's own host memory
 * is.
 */
#include "driver.h"

#include <stdlib.h>

#define REGISTER_FLAGS 0xfu

struct registration {
  struct registration *next;
  struct block block;
};

static struct registration *registrations;

struct block *registered_find(CUdeviceptr address) {
  for (struct registration *found = registrations; found != NULL; found = found->next)
    if (address - found->block.base < found->block.bytes) return &found->block;
  return NULL;
}

static bool overlaps(CUdeviceptr base, uint64_t bytes) {
  for (const struct registration *found = registrations; found != NULL; found = found->next)
    if (found->block.base < base + bytes && base < found->block.base + found->block.bytes) return true;
  return false;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
  CUcontext context = NULL;
  CUdeviceptr base = (CUdeviceptr)(uintptr_t)pointer;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (pointer == NULL || bytes == 0 || (flags & ~REGISTER_FLAGS) != 0) return CUDA_ERROR_INVALID_VALUE;
  struct registration *made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  driver_lock();
  if (overlaps(base, bytes)) {
    result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    free(made);
  } else {
    made->block = (struct block){
        .base = base, .bytes = bytes, .context = context, .card = context->card, .kind = BLOCK_REGISTERED};
    made->block.flags = flags;
    made->block.readable = true;
    made->next = registrations;
    registrations = made;
  }
  driver_unlock();
  return result;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
  return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer) {
  CUresult result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  for (struct registration **link = &registrations; *link != NULL; link = &(*link)->next) {
    struct registration *found = *link;
    if (found->block.base != (CUdeviceptr)(uintptr_t)pointer) continue;
    *link = found->next;
    free(found);
    result = CUDA_SUCCESS;
    break;
  }
  driver_unlock();
  return result;
}
