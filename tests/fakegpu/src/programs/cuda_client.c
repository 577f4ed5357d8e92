/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cuda_client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CANNOT_RUN = 3 };

typedef CUresult (*look_up)(const char *symbol, void **function, int version, uint64_t flags, int *status);

double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

const char *cuda_error_name(const struct cuda *cuda, CUresult error) {
  const char *name = NULL;
  if (cuda->cuGetErrorName == NULL || cuda->cuGetErrorName(error, &name) != 0 || name == NULL)
    return "unknown error";
  return name;
}

void cuda_check(const struct cuda *cuda, CUresult result, const char *call) {
  if (result == 0) return;
  fprintf(stderr, "%s: %s (%d)\n", call, cuda_error_name(cuda, result), result);
  exit(CANNOT_RUN);
}

static void find(look_up get, const char *name, int version, void *target) {
  void *found = NULL;
  int status = 0;
  if (get(name, &found, version, 0, &status) != 0 || found == NULL) {
    fprintf(stderr, "the CUDA driver has no %s of version %d\n", name, version);
    exit(CANNOT_RUN);
  }
  memcpy(target, &found, sizeof found);
}

static void load(struct cuda *cuda) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "no CUDA driver: %s\n", dlerror());
    exit(CANNOT_RUN);
  }
  void *found = dlsym(library, "cuGetProcAddress_v2");
  if (found == NULL) {
    fprintf(stderr, "the CUDA driver is older than 12.0: %s\n", dlerror());
    exit(CANNOT_RUN);
  }
  look_up get = NULL;
  memcpy(&get, &found, sizeof found);
#define CLIENT_FIND(name, version, parameters) find(get, #name, version, &cuda->name);
  CLIENT_FUNCTIONS(CLIENT_FIND)
}

void cuda_open(struct cuda *cuda, int ordinal) {
  CUdevice device = 0;
  CUcontext context = NULL;
  memset(cuda, 0, sizeof *cuda);
  load(cuda);
  cuda_check(cuda, cuda->cuInit(0), "cuInit");
  cuda_check(cuda, cuda->cuDeviceGet(&device, ordinal), "cuDeviceGet");
  cuda_check(cuda, cuda->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  cuda_check(cuda, cuda->cuCtxSetCurrent(context), "cuCtxSetCurrent");
}
