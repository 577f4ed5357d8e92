/* SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory by handle: made, shared with other processes, given back when neither a handle nor a
 * mapping is left. It is charged to the card that the properties name, whatever context is current. What lies
 * in it is kept in a memory file, so that several mappings, and processes, see the same bytes; only touched
 * pages take host memory.
 *
 * The file is also what goes to another process: its name tells the card. The importer is charged nothing;
 * that the memory is given back with the exporter's last reference, not the importer's, is a simplification.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TYPE_PINNED = 1 };
enum { HANDLE_NONE = 0, HANDLE_FILE_DESCRIPTOR = 1, HANDLE_FABRIC = 8 };
enum { LOCATION_HOST = 2, LOCATION_HOST_NUMA = 3, LOCATION_HOST_NUMA_CURRENT = 4 };
#define HOST_CARD UINT32_MAX

static struct object *spare;

static CUmemHandle handles; /* those that are alive, chained by object.next */

/* Numbers come from outside: one that never was a handle must not be followed. */
CUmemHandle handle_of(CUmemGenericAllocationHandle number) {
  CUmemHandle handle = handles;
  while (handle != NULL && (CUmemGenericAllocationHandle)(uintptr_t)handle != number)
    handle = (CUmemHandle)(void *)handle->object.next;
  return handle == NULL || handle->references == 0 ? NULL : handle;
}

CUmemHandle handle_add(const struct CUmemHandle_st *made) {
  CUmemHandle handle = object_new(&spare, sizeof *handle, MAGIC_HANDLE);
  if (handle == NULL) return NULL;
  *handle = *made;
  handle->object = (struct object){.magic = MAGIC_HANDLE, .next = handles == NULL ? NULL : &handles->object};
  handles = handle;
  return handle;
}

static void drop(CUmemHandle gone) {
  struct object *next = gone->object.next;
  if (handles == gone) {
    handles = (CUmemHandle)(void *)next;
  } else {
    struct object *object = &handles->object;
    while (object->next != &gone->object) object = object->next;
    object->next = next;
  }
  object_drop(&spare, gone);
}

static bool on_host(const CUmemAllocationProp_v1 *properties) {
  unsigned type = properties->location.type;
  return type == LOCATION_HOST || type == LOCATION_HOST_NUMA || type == LOCATION_HOST_NUMA_CURRENT;
}

/* The unit of the card that the properties name, HOST_CARD for the host's memory. */
static CUresult check(const CUmemAllocationProp_v1 *properties, uint32_t *card) {
  if (properties == NULL || properties->type != TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if ((properties->handle_types & ~(unsigned)(HANDLE_FILE_DESCRIPTOR | HANDLE_FABRIC)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *card = HOST_CARD;
  if (on_host(properties)) return CUDA_SUCCESS;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  const struct device *device = device_at(properties->location.id);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  *card = device->card;
  return CUDA_SUCCESS;
}

static void give_back(uint32_t card, uint64_t bytes) {
  if (card == HOST_CARD) return;
  state_lock();
  memory_give(card, bytes);
  state_unlock();
}

void handle_settle(CUmemHandle handle) {
  if (handle->references != 0 || handle->mapped != 0) return;
  if (!handle->imported) give_back(handle->card, handle->bytes);
  if (handle->multicast != NULL) multicast_free(handle->multicast);
  close(handle->file);
  drop(handle);
}

int handle_file(const char *name, uint64_t bytes) {
  int file = (int)syscall(SYS_memfd_create, name, 1u /* close on exec */);
  if (file >= 0 && ftruncate(file, (off_t)bytes) == 0) return file;
  if (file >= 0) close(file);
  return -1;
}

/* Under driver_lock. */
static CUresult make(uint64_t bytes, const CUmemAllocationProp_v1 *properties, uint32_t card,
                     CUmemHandle *made) {
  char name[64];
  if (card != HOST_CARD && !card_charge(card, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  snprintf(name, sizeof name, "fakegpu-%d-%u", (int)card, properties->handle_types);
  int file = handle_file(name, bytes);
  *made = file < 0 ? NULL
                   : handle_add(&(struct CUmemHandle_st){.bytes = bytes,
                                                         .card = card,
                                                         .properties = *properties,
                                                         .file = file,
                                                         .references = 1});
  if (*made != NULL) return CUDA_SUCCESS;
  if (file >= 0) close(file);
  give_back(card, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *number, size_t bytes,
                     const CUmemAllocationProp_v1 *properties, uint64_t flags) {
  uint32_t card = 0;
  CUmemHandle handle = NULL;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (number == NULL || bytes == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check(properties, &card);
  if (result != CUDA_SUCCESS) return result;
  if (bytes % VIRTUAL_GRANULARITY != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  result = make(bytes, properties, card, &handle);
  driver_unlock();
  if (result == CUDA_SUCCESS) *number = (CUmemGenericAllocationHandle)(uintptr_t)handle;
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle number) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  CUmemHandle handle = handle_of(number);
  if (handle != NULL) {
    handle->references--;
    handle_settle(handle);
  }
  driver_unlock();
  return handle == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp_v1 *properties,
                                       CUmemAllocationGranularity_flags option) {
  uint32_t card = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (granularity == NULL || option > 1) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = check(properties, &card);
  if (result == CUDA_SUCCESS) *granularity = VIRTUAL_GRANULARITY;
  return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp_v1 *properties,
                                                CUmemGenericAllocationHandle number) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  CUmemHandle handle = handle_of(number);
  bool good = handle != NULL && properties != NULL;
  if (good) *properties = handle->properties;
  driver_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle number,
                                      CUmemAllocationHandleType type, uint64_t flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (shareable == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type == HANDLE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED; /* no fabric manager here */
  driver_lock();
  CUmemHandle handle = handle_of(number);
  bool good = handle != NULL && type == HANDLE_FILE_DESCRIPTOR &&
              (handle->properties.handle_types & HANDLE_FILE_DESCRIPTOR) != 0;
  int file = good ? dup(handle->file) : -1;
  driver_unlock();
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *(int *)shareable = file;
  return CUDA_SUCCESS;
}

/* What an exporter wrote into the name of its memory file; false: it is none of ours. */
static bool read_file(int file, struct CUmemHandle_st *found) {
  char path[64], target[128];
  struct stat status;
  int card = 0;
  unsigned types = 0, devices = 0;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  ssize_t length = readlink(path, target, sizeof target - 1);
  if (length < 0 || fstat(file, &status) != 0 || status.st_size <= 0) return false;
  target[length] = '\0';
  if (sscanf(target, "/memfd:fakegpu-multicast-%u", &devices) == 1) {
    card = (int)HOST_CARD;
    found->multicast = multicast_new(devices);
    if (found->multicast == NULL) return false;
  } else if (sscanf(target, "/memfd:fakegpu-%d-%u", &card, &types) != 2) {
    return false;
  }
  found->card = (uint32_t)card;
  found->bytes = (uint64_t)status.st_size;
  found->properties.type = TYPE_PINNED;
  found->properties.handle_types = types;
  return true;
}

/* The ordinal that a unit has in this process; -1: it is not visible here. */
int handle_ordinal(uint32_t card) {
  for (int ordinal = 0; ordinal < device_count(); ordinal++)
    if (device_at(ordinal)->card == card) return ordinal;
  return -1;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *number, void *shareable,
                                        CUmemAllocationHandleType type) {
  struct CUmemHandle_st found = {.references = 1, .imported = true};
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (type == HANDLE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (number == NULL || type != HANDLE_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  int file = (int)(intptr_t)shareable;
  if (!read_file(file, &found)) return CUDA_ERROR_INVALID_VALUE;
  int ordinal = handle_ordinal(found.card);
  if (found.card != HOST_CARD && ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
  found.properties.location.type = found.card == HOST_CARD ? LOCATION_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  found.properties.location.id = found.card == HOST_CARD ? 0 : ordinal;
  found.file = dup(file);
  if (found.file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  driver_lock();
  CUmemHandle handle = handle_add(&found);
  if (handle != NULL) *number = (CUmemGenericAllocationHandle)(uintptr_t)handle;
  driver_unlock();
  if (handle == NULL) close(found.file);
  return handle == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
