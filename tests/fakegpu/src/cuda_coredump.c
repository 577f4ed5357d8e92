/* SPDX-License-Identifier: Apache-2.0
 *
 * How core dumps would be written, the driver's log, and what atomic operations can do. Nothing fails in a
 * kernel here, so no dump is ever written; nothing is ever logged.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUcoredumpSettings; the flags for the whole process begin as the manual says. */
enum { ON_EXCEPTION = 1, TRIGGER_HOST, LIGHTWEIGHT, USER_TRIGGER, FILE_NAME, PIPE_NAME, GENERATION, SETTINGS };
#define NAME_BYTES 1024u /* the manual: names are cut there */

struct settings {
  bool switches[FILE_NAME];
  unsigned generation;
  char names[2][NAME_BYTES];
};

static struct settings global = {.switches = {[TRIGGER_HOST] = true},
                                 .names = {"core_%t_%h_%p", "corepipe.cuda.%h.%p"}};

/* Where a value lies and how much of it there is; NULL: no such setting. */
static void *setting(unsigned attribute, size_t *bytes) {
  if (attribute >= ON_EXCEPTION && attribute <= USER_TRIGGER) {
    *bytes = sizeof(bool);
    return &global.switches[attribute];
  }
  if (attribute == FILE_NAME || attribute == PIPE_NAME) {
    char *name = global.names[attribute - FILE_NAME];
    *bytes = strlen(name) + 1;
    return name;
  }
  *bytes = sizeof global.generation;
  return attribute == GENERATION ? &global.generation : NULL;
}

/* Without room for the value only its size is told. */
CUresult cuCoredumpGetAttributeGlobal(unsigned attribute, void *value, size_t *size) {
  size_t bytes = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const void *found = setting(attribute, &bytes);
  if (found == NULL || size == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  if (value != NULL) memcpy(value, found, *size < bytes ? *size : bytes);
  driver_unlock();
  *size = bytes;
  return CUDA_SUCCESS;
}

CUresult cuCoredumpSetAttributeGlobal(unsigned attribute, void *value, size_t *size) {
  size_t bytes = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  void *found = setting(attribute, &bytes);
  bool is_name = attribute == FILE_NAME || attribute == PIPE_NAME;
  if (found == NULL || value == NULL || size == NULL || (!is_name && *size != bytes))
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  if (is_name)
    snprintf(found, NAME_BYTES, "%.*s", (int)(*size < NAME_BYTES ? *size : NAME_BYTES), (const char *)value);
  else
    memcpy(found, value, bytes);
  driver_unlock();
  return CUDA_SUCCESS;
}

/* A context's own settings are those of the process (a simplification). */
CUresult cuCoredumpGetAttribute(unsigned attribute, void *value, size_t *size) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  return result == CUDA_SUCCESS ? cuCoredumpGetAttributeGlobal(attribute, value, size) : result;
}

/* The manual: the host's part and the names are the process's alone. */
CUresult cuCoredumpSetAttribute(unsigned attribute, void *value, size_t *size) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (attribute != ON_EXCEPTION && attribute != TRIGGER_HOST && attribute != LIGHTWEIGHT &&
      attribute != GENERATION)
    return CUDA_ERROR_NOT_PERMITTED;
  return cuCoredumpSetAttributeGlobal(attribute, value, size);
}

CUresult cuLogsRegisterCallback(void *function, void *data, void **handle) {
  (void)data;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (function == NULL || handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  *handle = malloc(1); /* only told apart from others */
  return *handle == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(void *handle) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == NULL) return CUDA_ERROR_INVALID_VALUE;
  free(handle);
  return CUDA_SUCCESS;
}

CUresult cuLogsCurrent(unsigned *iterator, unsigned flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (iterator == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator = 0;
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(unsigned *iterator, const char *path, unsigned flags) {
  (void)iterator;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (path == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "w");
  return file != NULL && fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuLogsDumpToMemory(unsigned *iterator, char *buffer, size_t *size, unsigned flags) {
  (void)iterator;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (buffer == NULL || size == NULL || *size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  buffer[0] = '\0';
  *size = 0;
  return CUDA_SUCCESS;
}

enum { ATOMIC_OPERATIONS = 13, ATOMIC_ALL = 0x3f };

static CUresult atomics(unsigned *capabilities, const unsigned *operations, unsigned count, bool reached) {
  if (capabilities == NULL || operations == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < count; index++) {
    if (operations[index] >= ATOMIC_OPERATIONS) return CUDA_ERROR_INVALID_VALUE;
    capabilities[index] = reached ? ATOMIC_ALL : 0;
  }
  return CUDA_SUCCESS;
}

/* None over PCIe (attribute 86), all over NVLink. */
CUresult cuDeviceGetHostAtomicCapabilities(unsigned *capabilities, const unsigned *operations, unsigned count,
                                           CUdevice device) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (device_at(device) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  return atomics(capabilities, operations, count, false);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned *capabilities, const unsigned *operations, unsigned count,
                                          CUdevice device, CUdevice peer) {
  int joined = 0;
  CUresult result = cuDeviceCanAccessPeer(&joined, device, peer);
  return result == CUDA_SUCCESS ? atomics(capabilities, operations, count, joined != 0) : result;
}

/* There are no planar formats here. */
CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned index) {
  (void)index;
  CUresult result = array_resolve(array);
  return result == CUDA_SUCCESS || plane == NULL ? CUDA_ERROR_INVALID_VALUE : result;
}
