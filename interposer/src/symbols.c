/* SPDX-License-Identifier: Apache-2.0
 *
 * The table's layout: glibc's elf/dl-lookup.c and binutils' bfd/elflink.c are all the documentation that there
 * is. Four words (buckets, first symbol, words of the filter, its shift), the filter, the buckets, and for each
 * symbol from the first on its hash, whose lowest bit ends the bucket. */
#include "symbols.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VERSION_HIDDEN 0x8000u
#define WORD_BITS (8 * sizeof(ElfW(Addr)))

struct tables {
  const ElfW(Sym) * symbols;
  const char *strings;
  const uint32_t *hashes;
  const ElfW(Half) * versions; /* NULL: it has none */
};

/* glibc puts addresses in the place of offsets, others don't. */
static const void *table_at(const struct link_map *library, const ElfW(Dyn) * entry) {
  ElfW(Addr) at = entry->d_un.d_ptr;
  return (const void *)(at < library->l_addr ? at + library->l_addr : at);
}

static bool read_tables(const struct link_map *library, struct tables *tables) {
  memset(tables, 0, sizeof *tables);
  if (library->l_ld == NULL) return false;
  for (const ElfW(Dyn) *entry = library->l_ld; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) tables->symbols = table_at(library, entry);
    if (entry->d_tag == DT_STRTAB) tables->strings = table_at(library, entry);
    if (entry->d_tag == DT_GNU_HASH) tables->hashes = table_at(library, entry);
    if (entry->d_tag == DT_VERSYM) tables->versions = table_at(library, entry);
  }
  return tables->symbols != NULL && tables->strings != NULL && tables->hashes != NULL &&
         tables->hashes[0] != 0;
}

static uint32_t hash_of(const char *name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; name++) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

static bool is_wanted(const struct tables *tables, uint32_t number, const char *name) {
  const ElfW(Sym) *symbol = &tables->symbols[number];
  unsigned int type = ELF64_ST_TYPE(symbol->st_info);
  if (symbol->st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE))
    return false;
  if (tables->versions != NULL && (tables->versions[number] & VERSION_HIDDEN) != 0) return false;
  return strcmp(tables->strings + symbol->st_name, name) == 0;
}

void *symbols_find(const struct link_map *library, const char *name) {
  struct tables tables;
  if (!read_tables(library, &tables)) return NULL;
  uint32_t hash = hash_of(name), first = tables.hashes[1], words = tables.hashes[2];
  const ElfW(Addr) *filter = (const ElfW(Addr) *)(tables.hashes + 4);
  const uint32_t *buckets = (const uint32_t *)(filter + words), *chain = buckets + tables.hashes[0];
  ElfW(Addr) word = filter[hash / WORD_BITS % words];
  if ((word >> hash % WORD_BITS & word >> (hash >> tables.hashes[3]) % WORD_BITS & 1) == 0) return NULL;
  uint32_t number = buckets[hash % tables.hashes[0]];
  if (number < first) return NULL;
  for (;; number++) {
    uint32_t other = chain[number - first];
    if ((other | 1) == (hash | 1) && is_wanted(&tables, number, name))
      return (void *)(library->l_addr + tables.symbols[number].st_value);
    if ((other & 1) != 0) return NULL;
  }
}
