/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory shared with other processes: by IPC handles, and by pointers of exportable pools. A block that is
 * exported moves into a memory file under its own address; importers map the same file. Only the exporter is
 * charged; that an importer's mapping does not keep the exporter's memory charged after the exporter has
 * freed it is a simplification.
 */
#define _GNU_SOURCE
#include "shared_file.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC_IPC_MEMORY 0x4d435049u
#define CHUNK 65536u
enum { LAZY_ENABLE_PEER_ACCESS = 1, HANDLE_FILE_DESCRIPTOR = 1 };

_Static_assert(sizeof(struct shared_handle) == sizeof(CUipcMemHandle), "64 bytes");

static uint64_t exports_made;

static void *pointer(CUdeviceptr address) {
  return (void *)(uintptr_t)address;  // NOLINT(performance-no-int-to-ptr)
}

static bool all_zero(const char *bytes, size_t size) {
  return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* What was written so far, without what is zero: that stays a hole. */
static bool save(int file, const struct block *block) {
  for (uint64_t done = 0; block->readable && done < block->bytes; done += CHUNK) {
    uint64_t size = block->bytes - done < CHUNK ? block->bytes - done : CHUNK;
    const char *from = pointer(block->base + done);
    if (!all_zero(from, size) && pwrite(file, from, size, (off_t)done) != (ssize_t)size) return false;
  }
  return true;
}

static bool map_over(const struct block *block, int file, int protection) {
  return mmap(pointer(block->base), shared_bytes(block->bytes), protection, MAP_SHARED | MAP_FIXED, file,
              0) != MAP_FAILED;
}

/* Moves a block into a file; again is harmless. */
static CUresult move_out(struct block *block) {
  if (block->file != 0) return CUDA_SUCCESS;
  if (block->base % CHUNK_PAGE != 0) return CUDA_ERROR_INVALID_VALUE; /* of a pool that is not exportable */
  int file = shared_make(++exports_made, shared_bytes(block->bytes));
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  int protection = block->readable ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (!save(file, block) || !map_over(block, file, protection)) {
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  block->file = file + 1;
  block->export_id = exports_made;
  return CUDA_SUCCESS;
}

/* The handle of the block around an address. Under driver_lock. */
static CUresult export_block(CUdeviceptr address, enum block_kind kind, struct shared_handle *handle) {
  struct block *block = address_find(address);
  if (block == NULL || block->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = move_out(block);
  if (result != CUDA_SUCCESS) return result;
  shared_describe(handle, MAGIC_IPC_MEMORY, block->file - 1, block->export_id);
  handle->card = block->card;
  handle->bytes = block->bytes;
  handle->offset = address - block->base;
  return CUDA_SUCCESS;
}

struct search {
  const struct shared_handle *handle;
  struct block *found;
};

static void find_import(struct block *block, void *argument) {
  struct search *search = argument;
  if (block->kind == BLOCK_IPC && block->export_id == search->handle->id &&
      block->exporter == search->handle->pid)
    search->found = block;
}

/* Maps what the handle names. Under driver_lock. */
static CUresult import_block(const struct shared_handle *handle, enum block_kind kind, CUcontext context,
                             struct block **imported) {
  int file = shared_open(handle);
  if (file < 0) return CUDA_ERROR_MAP_FAILED;
  struct block *block = address_take(handle->bytes, true);
  if (block == NULL || !map_over(block, file, PROT_READ | PROT_WRITE)) {
    if (block != NULL) address_drop(block);
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  block->kind = (uint8_t)kind;
  block->context = context;
  block->card = handle->card;
  block->readable = true;
  block->file = file + 1;
  block->export_id = handle->id;
  block->exporter = handle->pid;
  block->flags = 1; /* how often it was opened */
  *imported = block;
  return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct shared_handle made;
  driver_lock();
  CUresult result = export_block(address, BLOCK_DEVICE, &made);
  driver_unlock();
  if (result != CUDA_SUCCESS) return result;
  made.offset = 0; /* the whole allocation */
  memcpy(handle, &made, sizeof *handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
  CUcontext context = NULL;
  struct shared_handle known;
  struct search search = {.handle = &known};
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  memcpy(&known, &handle, sizeof known);
  if (address == NULL || flags != LAZY_ENABLE_PEER_ACCESS || known.magic != MAGIC_IPC_MEMORY)
    return CUDA_ERROR_INVALID_VALUE;
  if (shared_is_own(&known)) return CUDA_ERROR_INVALID_CONTEXT; /* the manual: not by the exporter itself */
  driver_lock();
  address_each(find_import, &search);
  if (search.found != NULL)
    search.found->flags++;
  else
    result = import_block(&known, BLOCK_IPC, context, &search.found);
  if (result == CUDA_SUCCESS) *address = search.found->base;
  driver_unlock();
  return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  struct block *block = address_find(address);
  bool good = block != NULL && block->base == address && block->kind == BLOCK_IPC;
  if (good && --block->flags == 0) block_free(block);
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (data == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct shared_handle made;
  driver_lock();
  CUresult result = export_block(address, BLOCK_ASYNC, &made);
  driver_unlock();
  if (result == CUDA_SUCCESS) memcpy(data, &made, sizeof *data);
  return result;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  CUcontext context = NULL;
  struct shared_handle known;
  struct block *block = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (address == NULL || data == NULL || !pool_is_imported(pool)) return CUDA_ERROR_INVALID_VALUE;
  memcpy(&known, data, sizeof known);
  if (known.magic != MAGIC_IPC_MEMORY || known.offset >= known.bytes) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  result = import_block(&known, BLOCK_FOREIGN, context, &block);
  if (result == CUDA_SUCCESS) *address = block->base + known.offset;
  driver_unlock();
  return result;
}
