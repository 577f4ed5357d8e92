/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory and semaphores of other interfaces (Vulkan and the like), imported by a file descriptor. The memory
 * is the exporter's: nothing is charged here. A file that can't be mapped (a real one, of a real driver) is
 * replaced by memory of our own. Semaphores are always ready (a guess on the simple side): who signals one is
 * outside.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <sys/mman.h>
#include <unistd.h>

enum { TYPE_OPAQUE_FILE = 1, TYPE_DMABUF = 9, TYPE_TIMELINE_FILE = 9 };

struct CUexternalMemory_st {
  struct object object;
  int file;
  uint64_t bytes;
};

struct CUexternalSemaphore_st {
  struct object object;
};

static struct object *spare_memories, *spare_semaphores;

static bool alive(CUexternalMemory memory) {
  return memory != NULL && memory->object.magic == MAGIC_EXTERNAL_MEMORY;
}

/* The descriptor is CUDA's from then on. */
CUresult cuImportExternalMemory(CUexternalMemory *made,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC_v1 *description) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || description == NULL || description->size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (description->type != TYPE_OPAQUE_FILE && description->type != TYPE_DMABUF)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (description->handle.file < 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUexternalMemory memory = object_new(&spare_memories, sizeof *memory, MAGIC_EXTERNAL_MEMORY);
  if (memory != NULL) {
    memory->file = description->handle.file;
    memory->bytes = description->size;
    *made = memory;
  }
  driver_unlock();
  return memory == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(memory)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  close(memory->file);
  object_drop(&spare_memories, memory);
  driver_unlock();
  return CUDA_SUCCESS;
}

static bool map(struct block *block, CUexternalMemory memory, uint64_t offset) {
  void *start = (void *)(uintptr_t)block->base;  // NOLINT(performance-no-int-to-ptr)
  uint64_t bytes = shared_bytes(block->bytes);
  int file = dup(memory->file);
  if (file >= 0 &&
      mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, (off_t)offset) == MAP_FAILED) {
    close(file);
    file = -1;
  }
  if (file < 0) return address_open(block);
  block->file = file + 1;
  block->readable = true;
  return true;
}

/* To be freed by cuMemFree, as the manual says. */
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC_v1 *description) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!alive(memory)) return CUDA_ERROR_INVALID_HANDLE;
  if (address == NULL || description == NULL || description->size == 0 || description->flags != 0 ||
      description->size > memory->bytes || description->offset > memory->bytes - description->size)
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  struct block *block = address_take(description->size, true);
  if (block != NULL) {
    block->kind = BLOCK_FOREIGN;
    block->context = context;
    block->card = context->card;
    if (!map(block, memory, description->offset)) {
      address_drop(block);
      block = NULL;
    }
  }
  if (block != NULL) *address = block->base;
  driver_unlock();
  return block == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *made,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_v1 *description) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || description == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (description->type != TYPE_OPAQUE_FILE && description->type != TYPE_TIMELINE_FILE)
    return CUDA_ERROR_NOT_SUPPORTED;
  driver_lock();
  CUexternalSemaphore semaphore = object_new(&spare_semaphores, sizeof *semaphore, MAGIC_EXTERNAL_SEMAPHORE);
  if (semaphore != NULL) {
    close(description->handle.file);
    *made = semaphore;
  }
  driver_unlock();
  return semaphore == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static bool semaphore_alive(CUexternalSemaphore semaphore) {
  return semaphore != NULL && semaphore->object.magic == MAGIC_EXTERNAL_SEMAPHORE;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!semaphore_alive(semaphore)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  object_drop(&spare_semaphores, semaphore);
  driver_unlock();
  return CUDA_SUCCESS;
}

static CUresult use(const CUexternalSemaphore *semaphores, const void *params, unsigned count,
                    CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (semaphores == NULL || params == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < count; index++)
    if (!semaphore_alive(semaphores[index])) return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores, const void *params,
                                         unsigned count, CUstream stream) {
  return use(semaphores, params, count, stream);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores, const void *params,
                                       unsigned count, CUstream stream) {
  return use(semaphores, params, count, stream);
}
