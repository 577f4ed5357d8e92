/* SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress: the newest meaning of a name that is not newer than the version asked for, in the
 * spelling that the flags ask for. The per-thread spellings themselves are made here as well.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING(name, version, symbol, parameters)
#define PER_THREAD(name, version, symbol, per_thread_version, suffix, parameters, arguments) \
  CUresult symbol##suffix parameters {                                                       \
    bool before = per_thread_enter();                                                        \
    CUresult result = symbol arguments;                                                      \
    per_thread_leave(before);                                                                \
    return result;                                                                           \
  }
CUDA_FUNCTIONS(NOTHING, PER_THREAD)

typedef void (*entry_point)(void);

struct row {
  const char *name;
  int version;
  int per_thread_version; /* 0: has no such spelling */
  entry_point plain;
  entry_point per_thread;
};

#define ROW_PLAIN(name, version, symbol, parameters) {#name, version, 0, (entry_point)symbol, NULL},
#define ROW_STREAM(name, version, symbol, per_thread_version, suffix, parameters, arguments) \
  {#name, version, per_thread_version, (entry_point)symbol, (entry_point)symbol##suffix},
#define ROW_REST_PLAIN(name, version, symbol) {#name, version, 0, (entry_point)symbol, NULL},
#define ROW_REST_STREAM(name, version, symbol, per_thread_version, suffix) \
  {#name, version, per_thread_version, (entry_point)symbol, (entry_point)symbol##suffix},
static const struct row rows[] = {CUDA_FUNCTIONS(ROW_PLAIN, ROW_STREAM)
                                      CUDA_REST(ROW_REST_PLAIN, ROW_REST_STREAM)};
#define ROWS (sizeof rows / sizeof rows[0])

static int driver_version(void) {
  int version = 0;
  return cuDriverGetVersion(&version) == CUDA_SUCCESS ? version : 1 << 30;
}

/* Where only the per-thread spelling is too new, the plain one is the answer (a guess: the manual doesn't
 * say). */
static CUdriverProcAddressQueryResult look_up(const char *name, int version, bool per_thread,
                                              entry_point *found) {
  bool known = false;
  int best = -1, limit = driver_version();
  for (size_t index = 0; index < ROWS; index++) {
    const struct row *row = &rows[index];
    if (strcmp(row->name, name) != 0 || row->version > limit) continue;
    known = true;
    if (row->version > version || row->version <= best) continue;
    best = row->version;
    *found = per_thread && row->per_thread != NULL && row->per_thread_version <= version ? row->per_thread
                                                                                         : row->plain;
  }
  if (best >= 0) return CU_PROC_FOUND;
  return known ? CU_PROC_VERSION_NOT_SUFFICIENT : CU_PROC_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  if (symbol == NULL || function == NULL || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  entry_point found = NULL;
  bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CUdriverProcAddressQueryResult answer = look_up(symbol, version, per_thread, &found);
  memcpy(function, &found, sizeof found);
  if (status != NULL) *status = answer;
  return answer == CU_PROC_FOUND ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* Private tables of the real driver are not imitated. A library named by FAKEGPU_EXPORT_TABLES may supply
 * some, with a function of the same type called fakegpu_export_table. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  typedef CUresult (*supplier)(const void **table, const CUuuid *id);
  if (table == NULL || id == NULL) return CUDA_ERROR_INVALID_VALUE;
  *table = NULL;
  const char *path = getenv("FAKEGPU_EXPORT_TABLES");
  void *library = NULL;
  if (path != NULL && path[0] != '\0')
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);  // NOLINT(clang-analyzer-optin.taint.GenericTaint)
  void *found = library != NULL ? dlsym(library, "fakegpu_export_table") : NULL;
  if (found == NULL) return CUDA_ERROR_NOT_FOUND;
  supplier supply = NULL;
  memcpy(&supply, &found, sizeof supply);
  return supply(table, id);
}

struct error_text {
  CUresult code;
  const char *name;
  const char *text;
};

#define ERROR_ROW(name, value, text) {name, #name, text},
static const struct error_text errors[] = {CUDA_ERRORS(ERROR_ROW)};

static const struct error_text *error_find(CUresult code) {
  for (size_t index = 0; index < sizeof errors / sizeof errors[0]; index++)
    if (errors[index].code == code) return &errors[index];
  return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
  const struct error_text *found = error_find(error);
  if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *text = found == NULL ? NULL : found->name;
  return found == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  const struct error_text *found = error_find(error);
  if (text == NULL) return CUDA_ERROR_INVALID_VALUE;
  *text = found == NULL ? NULL : found->text;
  return found == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
