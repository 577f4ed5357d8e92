/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions, `cuda.cuMemAlloc` and so on, found by a named road: `come_by(road)`.
 *
 * ROAD: link, dlsym, next (RTLD_NEXT), gpa1, gpa2 (cuGetProcAddress, its _v2), ptsz (per-thread spellings by
 * gpa2), deepbind (RTLD_DEEPBIND), path (absolute, from $ROADS_CUDA), libc (libc's own dlsym), walk (through
 * the symbol table of libcuda.so.1) */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef uint64_t pointer;

/* CUDA_MEM_ALLOC_NODE_PARAMS, with CUmemPoolProps inside */
struct alloc_node {
  int type, handle_types, location_type, location;
  void *security;
  size_t most;
  unsigned char rest[56];
  const void *accesses;
  size_t access_count, bytes;
  pointer address;
};

/* name as in cuda.h's macros, symbol, version for cuGetProcAddress, has a per-thread spelling, parameters */
#define FUNCTIONS(X)                                                                                 \
  X(cuInit, cuInit, 2000, 0, (unsigned))                                                             \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000, 0, (int *))                                            \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, 0, (size_t *, int))                                 \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0, (void **, int))                     \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, 0, (int))                        \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, 0, (int))                            \
  X(cuCtxCreate, cuCtxCreate_v2, 3020, 0, (void **, unsigned, int))                                  \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000, 0, (void *))                                                \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0, (void *))                                             \
  X(cuMemAlloc, cuMemAlloc_v2, 3020, 0, (pointer *, size_t))                                         \
  X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (pointer *, size_t, unsigned))                    \
  X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, 0, (pointer *, size_t *, size_t, size_t, unsigned))   \
  X(cuMemAllocAsync, cuMemAllocAsync, 11020, 1, (pointer *, size_t, void *))                         \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 1, (pointer *, size_t, void *, void *)) \
  X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, 0, (void **, int))                  \
  X(cuMemFree, cuMemFree_v2, 3020, 0, (pointer))                                                     \
  X(cuMemFreeAsync, cuMemFreeAsync, 11020, 1, (pointer, void *))                                     \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020, 0, (size_t *, size_t *))                                    \
  X(cuMemCreate, cuMemCreate, 10020, 0, (pointer *, size_t, const void *, uint64_t))                 \
  X(cuMemRelease, cuMemRelease, 10020, 0, (pointer))                                                 \
  X(cuArray3DCreate, cuArray3DCreate_v2, 3020, 0, (void **, const void *))                           \
  X(cuArrayCreate, cuArrayCreate_v2, 3020, 0, (void **, const void *))                               \
  X(cuArrayDestroy, cuArrayDestroy, 2000, 0, (void *))                                               \
  X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0, (void **, const void *, unsigned))      \
  X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (void *))                             \
  X(cuMemPoolCreate, cuMemPoolCreate, 11020, 0, (void **, const void *))                             \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (void *, size_t))                                    \
  X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0, (void *, int, void *))                   \
  X(cuGraphCreate, cuGraphCreate, 10000, 0, (void **, unsigned))                                     \
  X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, 0,                                        \
    (void **, void *, const void *, size_t, struct alloc_node *))                                    \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0, (void **, void *, uint64_t)) \
  X(cuGraphLaunch, cuGraphLaunch, 10000, 1, (void *, void *))                                        \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0, (void *))                                      \
  X(cuGraphDestroy, cuGraphDestroy, 10000, 0, (void *))                                              \
  X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0, (int))

#define DECLARE(name, symbol, version, per_thread, parameters) extern result symbol parameters;
FUNCTIONS(DECLARE)
extern result cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static struct {
#define MEMBER(name, symbol, version, per_thread, parameters) result(*name) parameters;
  FUNCTIONS(MEMBER)
} cuda;

static void fail(const char *what, int code) {
  fprintf(stderr, "%s: %d\n", what, code);
  exit(3);
}

static void must(const char *what, int code) {
  if (code != 0) fail(what, code);
}

typedef result ask_v1(const char *, void **, int, uint64_t);
typedef result ask_v2(const char *, void **, int, uint64_t, int *);

/* As the CUDA runtime does it: the look-up function is itself looked up, by dlsym and then by itself. */
static void *asked(const char *name, int version, int per_thread, int old) {
  static void *library;
  void *found = NULL;
  int status = 0;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (old) {
    ask_v1 *ask = (ask_v1 *)dlsym(library, "cuGetProcAddress");
    must(name, ask(name, &found, version, per_thread ? 2 : 0));
    return found;
  }
  ask_v2 *first = (ask_v2 *)dlsym(library, "cuGetProcAddress_v2"), *ask = NULL;
  must("cuGetProcAddress", first("cuGetProcAddress", (void **)&ask, 12000, 0, &status));
  must(name, ask(name, &found, version, per_thread ? 2 : 0, &status));
  return found;
}

/* The symbol out of the library's own table, without asking the loader. */
static void *walked(const struct link_map *map, const char *symbol) {
  const ElfW(Sym) *symbols = NULL;
  const char *names = NULL;
  const uint32_t *hash = NULL;
  for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) symbols = (const void *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) names = (const char *)entry->d_un.d_ptr;
    if (entry->d_tag == DT_GNU_HASH) hash = (const uint32_t *)entry->d_un.d_ptr;
  }
  uint32_t buckets = hash[0], first = hash[1], words = hash[2];
  const uint32_t *bucket = hash + 4 + words * sizeof(ElfW(Addr)) / 4, *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++)
    for (uint32_t at = bucket[i]; at >= first; at++) {
      if (strcmp(names + symbols[at].st_name, symbol) == 0)
        return (void *)(map->l_addr + symbols[at].st_value);
      if (chain[at - first] & 1) break;
    }
  return NULL;
}

/* As a program finds dlsym that does not trust the one in front. */
static void *by_libc(void *handle, const char *symbol) {
  static void *(*lookup)(void *, const char *);
  void *libc = dlopen("libc.so.6", RTLD_LAZY);
  if (lookup == NULL) *(void **)&lookup = dlvsym(libc, "dlsym", "GLIBC_2.2.5");
  if (lookup == NULL) *(void **)&lookup = dlvsym(dlopen("libdl.so.2", RTLD_LAZY), "dlsym", "GLIBC_2.2.5");
  return lookup(handle, symbol);
}

static void *found_by(const char *road, const char *name, const char *symbol, void *linked, int version,
                      int per_thread) {
  if (strcmp(road, "link") == 0) return linked;
  if (strcmp(road, "dlsym") == 0) return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), symbol);
  if (strcmp(road, "deepbind") == 0)
    return dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_DEEPBIND), symbol);
  if (strcmp(road, "path") == 0) return dlsym(dlopen(getenv("ROADS_CUDA"), RTLD_LAZY), symbol);
  if (strcmp(road, "libc") == 0) return by_libc(dlopen("libcuda.so.1", RTLD_LAZY), symbol);
  if (strcmp(road, "walk") == 0) {
    /* What is not there is the driver's. */
    void *library = dlopen("libcuda.so.1", RTLD_LAZY), *found = walked(library, symbol);
    return found != NULL ? found : dlsym(library, symbol);
  }
  if (strcmp(road, "next") == 0) return dlsym(RTLD_NEXT, symbol);
  if (strcmp(road, "gpa1") == 0) return asked(name, version, 0, 1);
  if (strcmp(road, "gpa2") == 0) return asked(name, version, 0, 0);
  if (strcmp(road, "ptsz") == 0) return asked(name, version, per_thread, 0);
  fail(road, -1);
  return NULL;
}

static void come_by(const char *road) {
#define FIND(name, symbol, version, per_thread, parameters)                                              \
  cuda.name = (result(*) parameters)found_by(road, #name, #symbol, (void *)symbol, version, per_thread); \
  if (cuda.name == NULL) fail(#name, -1);
  FUNCTIONS(FIND)
}
