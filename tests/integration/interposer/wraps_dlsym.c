/* SPDX-License-Identifier: Apache-2.0
 *
 * A profiler, as far as the loader is concerned: another library that stands before dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

void *dlsym(void *handle, const char *symbol) {
  static void *(*next)(void *, const char *);
  if (next == NULL) *(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  return next(handle, symbol);
}
