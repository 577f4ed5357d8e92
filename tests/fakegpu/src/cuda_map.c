/* SPDX-License-Identifier: Apache-2.0
 *
 * Address ranges that are reserved, and handles mapped into them. A mapping is a block like any other to who
 * asks for the address; it may be touched once access to it is set. Whole mappings only are unmapped, as with
 * the real driver.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <sys/mman.h>

#define RESERVATION_HINT 0x300000000000ull

struct reservation {
  struct reservation *next;
  CUdeviceptr base;
  uint64_t bytes;
};

struct mapping {
  struct mapping *next;
  struct block block;
  CUmemHandle handle;
  unsigned access;
};

static struct reservation *reservations;
static struct mapping *mappings;
static CUdeviceptr next_hint = RESERVATION_HINT;
static uint64_t mappings_made;

static void *pointer(CUdeviceptr address) {
  return (void *)(uintptr_t)address;  // NOLINT(performance-no-int-to-ptr)
}

static bool aligned(uint64_t number) { return number % VIRTUAL_GRANULARITY == 0; }

static struct mapping *mapping_at(CUdeviceptr address) {
  for (struct mapping *mapping = mappings; mapping != NULL; mapping = mapping->next)
    if (address - mapping->block.base < mapping->block.bytes) return mapping;
  return NULL;
}

struct block *mapping_find(CUdeviceptr address) {
  struct mapping *mapping = mapping_at(address);
  return mapping == NULL ? registered_find(address) : &mapping->block;
}

/* Calls visit for the mappings that fill [base, base + bytes) without a gap; false: they don't, or one of
 * them reaches out of it. */
static bool each_within(CUdeviceptr base, uint64_t bytes,
                        void (*visit)(struct mapping *mapping, void *argument), void *argument) {
  for (int round = 0; round < 2; round++)
    for (CUdeviceptr at = base; at < base + bytes;) {
      struct mapping *mapping = mapping_at(at);
      if (mapping == NULL || mapping->block.base != at || mapping->block.bytes > base + bytes - at)
        return false;
      at += mapping->block.bytes;
      if (round == 1) visit(mapping, argument);
    }
  return true;
}

static struct reservation *reservation_of(CUdeviceptr base, uint64_t bytes) {
  for (struct reservation *found = reservations; found != NULL; found = found->next)
    if (base >= found->base && base - found->base <= found->bytes &&
        bytes <= found->bytes - (base - found->base))
      return found;
  return NULL;
}

/* Addresses are taken upwards from a place far from the host's; a wish is fulfilled where it can be. */
static CUdeviceptr reserve(uint64_t bytes, uint64_t alignment, CUdeviceptr wish) {
  CUdeviceptr target =
      wish != 0 && wish % alignment == 0 ? wish : (next_hint + alignment - 1) & ~(alignment - 1);
  void *found = mmap(pointer(target), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return 0;
  CUdeviceptr base = (CUdeviceptr)(uintptr_t)found;
  if (base % alignment != 0) {
    munmap(found, bytes);
    return wish == 0 ? 0 : reserve(bytes, alignment, 0);
  }
  if (base == next_hint || target != wish) next_hint = base + bytes;
  return base;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                             uint64_t flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (address == NULL || bytes == 0 || !aligned(bytes) || flags != 0 || (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (alignment < VIRTUAL_GRANULARITY) alignment = VIRTUAL_GRANULARITY;
  struct reservation *made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  driver_lock();
  made->base = reserve(bytes, alignment, wish);
  if (made->base != 0) {
    made->bytes = bytes;
    made->next = reservations;
    reservations = made;
    *address = made->base;
  }
  driver_unlock();
  if (made->base != 0) return CUDA_SUCCESS;
  free(made);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool anything_mapped(CUdeviceptr base, uint64_t bytes) {
  for (const struct mapping *mapping = mappings; mapping != NULL; mapping = mapping->next)
    if (mapping->block.base < base + bytes && base < mapping->block.base + mapping->block.bytes) return true;
  return false;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  for (struct reservation **link = &reservations; *link != NULL; link = &(*link)->next) {
    struct reservation *found = *link;
    if (found->base != address || found->bytes != bytes || anything_mapped(address, bytes)) continue;
    munmap(pointer(address), bytes);
    *link = found->next;
    free(found);
    result = CUDA_SUCCESS;
    break;
  }
  driver_unlock();
  return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle number,
                  uint64_t flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0 || !aligned(bytes) || !aligned(address) || offset != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE; /* the manual: an offset is not supported yet */
  struct mapping *made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  driver_lock();
  CUmemHandle handle = handle_of(number);
  bool good = handle != NULL && bytes <= handle->bytes && reservation_of(address, bytes) != NULL &&
              !anything_mapped(address, bytes);
  if (good)
    good = mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, handle->file, 0) != MAP_FAILED;
  if (good) {
    handle->mapped++;
    made->handle = handle;
    made->block = (struct block){.base = address,
                                 .bytes = bytes,
                                 .kind = BLOCK_MAPPED,
                                 .card = handle->card,
                                 .id = UINT64_MAX - ++mappings_made};
    made->next = mappings;
    mappings = made;
  }
  driver_unlock();
  if (!good) free(made);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void unmap(struct mapping *gone, void *argument) {
  (void)argument;
  pages_clear(gone->block.base, gone->block.bytes);
  gone->handle->mapped--;
  handle_settle(gone->handle);
  for (struct mapping **link = &mappings; *link != NULL; link = &(*link)->next)
    if (*link == gone) {
      *link = gone->next;
      break;
    }
  free(gone);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  bool good = bytes != 0 && each_within(address, bytes, unmap, NULL);
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void allow(struct mapping *mapping, void *argument) {
  mapping->access = *(const unsigned *)argument;
  mapping->block.readable = mapping->access != 0;
  int protection = mapping->access == 3   ? PROT_READ | PROT_WRITE
                   : mapping->access == 1 ? PROT_READ
                                          : PROT_NONE;
  mprotect(pointer(mapping->block.base), mapping->block.bytes, protection);
}

/* One access for all devices: the last one that was set. The real one keeps it by device. */
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc_v1 *descriptions,
                        size_t count) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (descriptions == NULL || count == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned flags = 0;
  for (size_t index = 0; index < count; index++) {
    flags = descriptions[index].flags;
    if (flags != 0 && flags != 1 && flags != 3) return CUDA_ERROR_INVALID_VALUE;
    if (descriptions[index].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        device_at(descriptions[index].location.id) == NULL)
      return CUDA_ERROR_INVALID_DEVICE;
  }
  driver_lock();
  bool good = each_within(address, bytes, allow, &flags);
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation_v1 *location, CUdeviceptr address) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  const struct mapping *mapping = mapping_at(address);
  bool good = mapping != NULL && flags != NULL && location != NULL;
  if (good) *flags = mapping->access;
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *number, void *address) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  const struct mapping *mapping = mapping_at((CUdeviceptr)(uintptr_t)address);
  bool good = mapping != NULL && number != NULL;
  if (good) {
    mapping->handle->references++;
    *number = (CUmemGenericAllocationHandle)(uintptr_t)mapping->handle;
  }
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
