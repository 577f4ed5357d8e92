/* SPDX-License-Identifier: Apache-2.0
 *
 * Names are found as the loader finds them in one library, which here is libc. */
#include "symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

#include "check.h"

/* Some of them in several versions, of which the default one is wanted. */
static const char *const names[] = {"fopen",  "getenv",      "qsort",    "strtoull", "pthread_cond_wait",
                                    "dlopen", "posix_spawn", "realpath", "environ",  "stdout"};

static const struct link_map *map_of(void *handle) {
  struct link_map *map = NULL;
  CHECK(dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0);
  return map;
}

static void test_finds_what_the_loader_finds(const struct link_map *map, void *handle) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    void *found = symbols_find(map, names[i]);
    if (found == NULL || found != dlsym(handle, names[i])) fprintf(stderr, "%s: ", names[i]);
    CHECK(found != NULL && found == dlsym(handle, names[i]));
  }
}

static void test_finds_nothing_else(const struct link_map *map) {
  static const char *const absent[] = {"cuInit", "", "fope", "fopenn", "__tls_get_addr"};
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) CHECK(symbols_find(map, absent[i]) == NULL);
}

/* It is the loader that chooses among several functions. */
static void test_leaves_choices_to_the_loader(const struct link_map *map, void *handle) {
  CHECK(dlsym(handle, "memcpy") != NULL && symbols_find(map, "memcpy") == NULL);
}

/* Offsets where glibc has put addresses: as in libraries that it doesn't load. */
static void test_reads_tables_that_nobody_relocated(const struct link_map *map) {
  ElfW(Dyn) copy[128];
  size_t count = 0;
  for (; map->l_ld[count].d_tag != DT_NULL; count++) {
    CHECK(count + 1 < sizeof copy / sizeof *copy);
    copy[count] = map->l_ld[count];
    ElfW(Sxword) tag = copy[count].d_tag;
    if (tag == DT_SYMTAB || tag == DT_STRTAB || tag == DT_GNU_HASH || tag == DT_VERSYM)
      copy[count].d_un.d_ptr -= map->l_addr;
  }
  copy[count].d_tag = DT_NULL;
  struct link_map unrelocated = {.l_addr = map->l_addr, .l_ld = copy};
  CHECK(symbols_find(&unrelocated, "qsort") == symbols_find(map, "qsort"));
  for (size_t i = 0; i < count; i++)
    if (copy[i].d_tag == DT_GNU_HASH) copy[i].d_tag = DT_DEBUG;
  CHECK(symbols_find(&unrelocated, "qsort") == NULL);
}

int main(void) {
  void *handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  CHECK(handle != NULL);
  const struct link_map *map = map_of(handle);
  test_finds_what_the_loader_finds(map, handle);
  test_finds_nothing_else(map);
  test_leaves_choices_to_the_loader(map, handle);
  test_reads_tables_that_nobody_relocated(map);
  return 0;
}
