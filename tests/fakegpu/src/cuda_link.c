/* SPDX-License-Identifier: Apache-2.0
 *
 * The linker of code that comes in parts. What it makes is the first part that is not PTX, or all PTX one
 * after another: enough for the kernels in it to be found.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_TYPES = 6 };

struct CUlinkState_st {
  struct object object;
  char *code; /* ends with a NUL */
  size_t bytes;
  bool binary;
};

static struct object *spare;

static bool alive(CUlinkState link) { return link != NULL && link->object.magic == MAGIC_LINK; }

CUresult cuLinkCreate_v2(unsigned option_count, CUjit_option *options, void **values, CUlinkState *made) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (made == NULL || (option_count != 0 && (options == NULL || values == NULL)))
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  *made = object_new(&spare, sizeof **made, MAGIC_LINK);
  driver_unlock();
  return *made == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned option_count, CUjit_option *options, void **values, CUlinkState *made) {
  return cuLinkCreate_v2(option_count, options, values, made);
}

static CUresult add(CUlinkState link, const char *data, size_t bytes, bool binary) {
  if (link->binary) return CUDA_SUCCESS;
  size_t kept = binary ? 0 : link->bytes;
  char *grown = realloc(link->code, kept + bytes + 2);
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(grown + kept, data, bytes);
  link->code = grown;
  link->bytes = kept + bytes;
  link->binary = binary;
  if (!binary) link->code[link->bytes++] = '\n';
  link->code[link->bytes] = '\0';
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t bytes, const char *name,
                          unsigned option_count, CUjit_option *options, void **values) {
  (void)name, (void)options, (void)values, (void)option_count;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(link)) return CUDA_ERROR_INVALID_HANDLE;
  if (data == NULL || bytes == 0 || type > INPUT_TYPES) return CUDA_ERROR_INVALID_VALUE;
  if (type != INPUT_PTX) return add(link, data, bytes, true);
  return add(link, data, strnlen(data, bytes), false);
}

CUresult cuLinkAddData(CUlinkState link, CUjitInputType type, void *data, size_t bytes, const char *name,
                       unsigned option_count, CUjit_option *options, void **values) {
  return cuLinkAddData_v2(link, type, data, bytes, name, option_count, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState link, CUjitInputType type, const char *path, unsigned option_count,
                          CUjit_option *options, void **values) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(link)) return CUDA_ERROR_INVALID_HANDLE;
  FILE *file = path == NULL ? NULL : fopen(path, "re");
  if (file == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  char *text = NULL;
  size_t room = 0;
  ssize_t bytes = getdelim(&text, &room, EOF, file);
  fclose(file);
  CUresult result =
      bytes <= 0 ? CUDA_ERROR_INVALID_IMAGE
                 : cuLinkAddData_v2(link, type, text, (size_t)bytes, path, option_count, options, values);
  free(text);
  return result;
}

CUresult cuLinkAddFile(CUlinkState link, CUjitInputType type, const char *path, unsigned option_count,
                       CUjit_option *options, void **values) {
  return cuLinkAddFile_v2(link, type, path, option_count, options, values);
}

/* The code stays the linker's, until it is destroyed. */
CUresult cuLinkComplete(CUlinkState link, void **code, size_t *bytes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(link)) return CUDA_ERROR_INVALID_HANDLE;
  if (code == NULL || link->code == NULL) return CUDA_ERROR_INVALID_VALUE;
  *code = link->code;
  if (bytes != NULL) *bytes = link->bytes;
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState link) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!alive(link)) return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  free(link->code);
  object_drop(&spare, link);
  driver_unlock();
  return CUDA_SUCCESS;
}
