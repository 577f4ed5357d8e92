/* SPDX-License-Identifier: Apache-2.0
 *
 * Names in one loaded library, without the loader: its own look-up takes a lock that it also holds while a
 * library's constructors run, so it may not be asked while a lock of ours is held. */
#ifndef TESSERA_SYMBOLS_H
#define TESSERA_SYMBOLS_H

struct link_map;

/* The address of a function or variable that this very library (none of its dependencies) defines; NULL: none.
 * Of several versions the default one. Also NULL: the library has no GNU hash table; the name is chosen by the
 * loader among several functions (IFUNC). */
void *symbols_find(const struct link_map *library, const char *name);

#endif
