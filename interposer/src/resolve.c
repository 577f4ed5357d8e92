/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups: how a program comes to a hook, and how a hook comes to the real function.
 *
 *   linking           the hooks are exported, and a preloaded library comes before libcuda.so.1
 *   dlsym             exported here without a symbol version, so that callers linked against GLIBC_2.2.5 and
 *                     GLIBC_2.34 both land here; names that are not ours go on by a tail call, so that
 *                     RTLD_NEXT and RTLD_DEFAULT mean to libc what they meant to the caller; so does all
 *                     that the driver itself asks for
 *   cuGetProcAddress  the driver answers first; a hook is handed out only for the very address that it
 *                     wraps, so the caller's version and flags are honoured without knowing their rules
 *
 * Nothing is done before the first look-up or call of a name in the table: no constructor, no dlopen. The
 * driver's library is looked for once, each of its functions when it is first wanted: without the loader, which
 * would be asked under locks then.
 *
 * As a shim (TESSERA_SHIM) the library is itself what programs load as libcuda.so.1 and libnvidia-ml.so.1,
 * and the driver's own are under a path that only the shim asks for. They are its dependencies, so that a
 * name without a hook is found in them, by linking and by dlsym; dlsym itself is left alone. A preloaded
 * library beside it stands aside: it is for programs that find another driver first, of their image's own. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "hooks.h"
#include "log.h"
#include "symbols.h"

struct row {
  const char *symbol;
  const char *base; /* for cuGetProcAddress; NULL: not looked up there */
  void *hook;       /* NULL: only called */
  int since;
  unsigned char per_thread;
  unsigned char library;
};

static const struct row rows[ADDRESS_COUNT] = {
#define CUDA_HOOK(symbol, base, since, per_thread, policy, parameters) \
  {#symbol, base, (void *)symbol, since, per_thread, LIBRARY_CUDA},
#define NVML_HOOK(symbol, policy, parameters) {#symbol, NULL, (void *)symbol, 0, 0, LIBRARY_NVML},
#include "hooks_table.inc"
#undef CUDA_HOOK
#undef NVML_HOOK
    {NULL, NULL, NULL, 0, 0, LIBRARY_COUNT},
#define DRIVER_CALL(symbol, parameters) {#symbol, NULL, NULL, 0, 0, LIBRARY_CUDA},
#define NVML_CALL(symbol, parameters) {#symbol, NULL, NULL, 0, 0, LIBRARY_NVML},
#include "driver_table.inc"
#undef DRIVER_CALL
#undef NVML_CALL
};

#ifdef TESSERA_SHIM
#define DRIVER_DIRECTORY TESSERA_SHIM "/"
#else
#define DRIVER_DIRECTORY ""
#endif
static const char *const sonames[LIBRARY_COUNT] = {DRIVER_DIRECTORY "libcuda.so.1",
                                                   DRIVER_DIRECTORY "libnvidia-ml.so.1"};
#ifndef TESSERA_SHIM
static const char *const stems[LIBRARY_COUNT] = {"libcuda.so", "libnvidia-ml.so"};
#endif

typedef void *dlsym_function(void *, const char *);

_Atomic(void *) real_address[ADDRESS_COUNT];
__thread bool inside_driver;

/* Where functions are looked for; `nowhere`: all that there are have been found. NULL: not looked for yet. */
static _Atomic(const struct link_map *) driver_library[LIBRARY_COUNT];
static const struct link_map nowhere;

/* What cuGetProcAddress answers for a row at its own version, once it was asked; differs from dlsym's where the
   driver hands out entry points that it does not export. */
static _Atomic(void *) answered_address[HOOK_COUNT];
static _Atomic(dlsym_function *) libc_dlsym;
/* What was bound is a shim: it keeps the limits, so its functions are handed out as they are. */
static atomic_bool beside_shim;

static CUresult absent_in_cuda(void) { return CUDA_ERROR_NOT_FOUND; }
static nvmlReturn_t absent_in_nvml(void) { return NVML_ERROR_FUNCTION_NOT_FOUND; }

static dlsym_function *find_libc_dlsym(void) {
  /* dlvsym is not ours, so it leads past this library. The version is the architecture's first; 2.34 is for a
     libc that has dropped the old one. */
#if defined(__x86_64__)
  static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
#else
  static const char *const versions[] = {"GLIBC_2.17", "GLIBC_2.34"};
#endif
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    void *found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (found != NULL) {
      dlsym_function *function = (dlsym_function *)found;
      atomic_store_explicit(&libc_dlsym, function, memory_order_release);
      return function;
    }
  }
  return NULL;
}

static inline dlsym_function *real_dlsym(void) {
  dlsym_function *function = atomic_load_explicit(&libc_dlsym, memory_order_acquire);
  return function != NULL ? function : find_libc_dlsym();
}

/* --- the table by name -------------------------------------------------------------------------------- */

/* Open addressing over the hooks' symbols and bases, filled once; 1 + number, 0 is empty. Rows of one name come in
   the table's order. */
#define INDEX_SIZE 2048u
_Static_assert(HOOK_COUNT * 4 <= INDEX_SIZE, "the index is at most half full");
static _Atomic uint16_t name_index[INDEX_SIZE];
static atomic_bool name_index_ready;

static unsigned int hash_name(const char *name) {
  unsigned int hash = 2166136261u;
  for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash ^ hash >> 15;
}

static void add_to_index(uint16_t index[INDEX_SIZE], const char *name, int number) {
  unsigned int place = hash_name(name) % INDEX_SIZE;
  while (index[place] != 0) place = (place + 1) % INDEX_SIZE;
  index[place] = (uint16_t)(number + 1);
}

/* Threads that come at the same time all do this and write the same values: of a lock, a child that is forked
   meanwhile would have nobody to leave it. */
static void fill_index(void) {
  uint16_t index[INDEX_SIZE] = {0};
  for (int number = 0; number < HOOK_COUNT; number++) {
    const struct row *row = &rows[number];
    add_to_index(index, row->symbol, number);
    if (row->base != NULL && strcmp(row->base, row->symbol) != 0) add_to_index(index, row->base, number);
  }
  for (unsigned int place = 0; place < INDEX_SIZE; place++)
    atomic_store_explicit(&name_index[place], index[place], memory_order_relaxed);
  atomic_store_explicit(&name_index_ready, true, memory_order_release);
}

static unsigned int first_place(const char *name) {
  if (!atomic_load_explicit(&name_index_ready, memory_order_acquire)) fill_index();
  return hash_name(name) % INDEX_SIZE;
}

/* The next row that may be of the name; -1: there is none any more. */
static int next_row(unsigned int *place) {
  int number = atomic_load_explicit(&name_index[*place], memory_order_relaxed) - 1;
  *place = (*place + 1) % INDEX_SIZE;
  return number;
}

#ifndef TESSERA_SHIM
static int find_symbol(const char *name) {
  unsigned int place = first_place(name);
  int number = next_row(&place);
  while (number >= 0 && strcmp(rows[number].symbol, name) != 0) number = next_row(&place);
  return number;
}
#endif

/* cuXxx or nvmlXxx; not cublas…, curl_…, cuserid. Reads no byte behind the name's end. */
static inline bool may_be_ours(const char *name) {
  if (name[0] == 'c') return name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
  return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l';
}

/* --- binding ------------------------------------------------------------------------------------------ */

static void *loaded_library(enum library library) {
  return dlopen(sonames[library], RTLD_LAZY | RTLD_NOLOAD);
}

/* The library, where it has the functions in itself and a table of them. */
static const struct link_map *own_functions(enum library library, void *handle) {
  struct link_map *map = NULL;
  const char *first = rows[library == LIBRARY_CUDA ? HOOK_cuInit : CALL_nvmlInit_v2].symbol;
  if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL) return NULL;
  return symbols_find(map, first) != NULL ? map : NULL;
}

#ifdef TESSERA_SHIM
TESSERA_EXPORT extern const char tessera_shim;
const char tessera_shim = 1; /* found by its name */

static bool is_shim(enum library library, void *handle) {
  (void)library;
  (void)handle; /* what this one binds is the driver's own */
  return false;
}

bool shim_stands_in(void) { return false; }
#else
/* The one for NVML is empty: there it is asked for in what it leads to. */
static bool is_shim(enum library library, void *handle) {
  const struct link_map *map = own_functions(library, handle);
  if (map != NULL) return symbols_find(map, "tessera_shim") != NULL;
  dlsym_function *lookup = real_dlsym();
  return handle != NULL && lookup != NULL && lookup(handle, "tessera_shim") != NULL;
}

bool shim_stands_in(void) {
  void *cuda = loaded_library(LIBRARY_CUDA);
  /* The shim for NVML brings the one for CUDA along: NVML without it is the driver's own. */
  if (cuda == NULL && loaded_library(LIBRARY_NVML) != NULL) return false;
  return is_shim(LIBRARY_CUDA, cuda != NULL ? cuda : dlopen(sonames[LIBRARY_CUDA], RTLD_LAZY));
}
#endif

static void *absent(enum library library) {
  return library == LIBRARY_CUDA ? (void *)absent_in_cuda : (void *)absent_in_nvml;
}

/* By the loader, of a library in which we can't look up ourselves: all at once, since no lock is held now. */
static void bind_all(enum library library, void *handle) {
  dlsym_function *lookup = real_dlsym();
  for (int number = 0; number < ADDRESS_COUNT; number++) {
    if (rows[number].library != library) continue;
    void *address = handle != NULL && lookup != NULL ? lookup(handle, rows[number].symbol) : NULL;
    if (address == NULL) address = absent(library);
    atomic_store_explicit(&real_address[number], address, memory_order_release);
  }
}

/* Threads that come at the same time all do this and write the same values: a lock held over dlopen would
   wait for the loader's, which a thread may hold whose library's constructor calls us. */
static const struct link_map *find_driver(enum library library) {
  void *handle = loaded_library(library);
  if (handle == NULL) handle = dlopen(sonames[library], RTLD_LAZY);
  log_debug("%s: %s", sonames[library], handle != NULL ? "bound" : "not to be loaded");
  bool beside = is_shim(library, handle);
  if (beside) atomic_store_explicit(&beside_shim, true, memory_order_relaxed);
  const struct link_map *found = beside ? NULL : own_functions(library, handle);
  if (found == NULL) {
    bind_all(library, handle);
    found = &nowhere;
  }
  /* The handle stays open: real addresses must not go away under a program that closes its own. */
  atomic_store_explicit(&driver_library[library], found, memory_order_release);
  return found;
}

void *bind_address(int number) {
  enum library library = (enum library)rows[number].library;
  const struct link_map *map = atomic_load_explicit(&driver_library[library], memory_order_acquire);
  if (map == NULL) map = find_driver(library);
  if (map == &nowhere) return atomic_load_explicit(&real_address[number], memory_order_acquire);
  void *address = symbols_find(map, rows[number].symbol);
  if (address == NULL) address = absent(library);
  atomic_store_explicit(&real_address[number], address, memory_order_release);
  return address;
}

/* Where a library's dynamic section lies: behind all that it has of code and tables. */
uint64_t driver_build(void) {
  bound_address(HOOK_cuInit);
  const struct link_map *map = atomic_load_explicit(&driver_library[LIBRARY_CUDA], memory_order_acquire);
  return map->l_ld == NULL ? 0 : (uint64_t)(uintptr_t)map->l_ld - map->l_addr;
}

bool driver_has(int number) { return bound_address(number) != absent((enum library)rows[number].library); }

/* --- cuGetProcAddress --------------------------------------------------------------------------------- */

/* What the driver answers for a row at its own version: an entry point that it may not export. */
static void *answer_for(int number) {
  const struct row *row = &rows[number];
  void *answer = atomic_load_explicit(&answered_address[number], memory_order_relaxed);
  if (answer != NULL) return answer;
  uint64_t flags =
      row->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
  int found = 0;
  CUresult result = driver_has(HOOK_cuGetProcAddress_v2)
                        ? REAL(cuGetProcAddress_v2)(row->base, &answer, row->since, flags, &found)
                        : REAL(cuGetProcAddress)(row->base, &answer, row->since, flags);
  if (result != CUDA_SUCCESS || answer == NULL) answer = absent(LIBRARY_CUDA);
  atomic_store_explicit(&answered_address[number], answer, memory_order_relaxed);
  return answer;
}

/* A row's address is matched, not its version's number: what the driver answers for a version that this table
   does not know yet is another address, and goes through untouched. */
void *hook_for_answer(const char *name, void *answer, uint64_t flags) {
  int match = -1;
  if (!may_be_ours(name) || atomic_load_explicit(&beside_shim, memory_order_relaxed)) return answer;
  unsigned int place = first_place(name);
  for (int number = next_row(&place); number >= 0; number = next_row(&place)) {
    const struct row *row = &rows[number];
    if (row->base == NULL || (strcmp(row->base, name) != 0 && strcmp(row->symbol, name) != 0)) continue;
    if (answer != bound_address(number) && answer != answer_for(number)) continue;
    /* A driver may use one address for both kinds of default stream: the one that was asked for comes first.
     */
    bool wanted = row->per_thread == (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    if (match < 0 || wanted) match = number;
  }
  return match >= 0 ? rows[match].hook : answer;
}

#ifndef TESSERA_SHIM
/* --- dlsym -------------------------------------------------------------------------------------------- */

/* The name of the file that an address belongs to. */
static const char *file_of(const void *address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return "";
  const char *file = strrchr(info.dli_fname, '/');
  return file != NULL ? file + 1 : info.dli_fname;
}

static bool is_drivers(const char *file, enum library library) {
  return strncmp(file, stems[library], strlen(stems[library])) == 0;
}

/* A driver that only leads to another library, whose functions have the same names (WSL2), would be led back to
   itself. */
static bool is_asked_by_driver(const void *caller) {
  const char *file = file_of(caller);
  return is_drivers(file, LIBRARY_CUDA) || is_drivers(file, LIBRARY_NVML);
}

/* What the name means to the whole program, in which this library stands before the driver. */
static void *lookup_behind(const struct row *row) {
  dlsym_function *lookup = real_dlsym();
  void *driver = loaded_library((enum library)row->library);
  if (driver == NULL || lookup(driver, row->symbol) == NULL) return lookup(RTLD_NEXT, row->symbol);
  return row->hook;
}

/* A name of the table. An absent name stays absent, somebody else's function of that name stays his; for
   RTLD_NEXT the answer is the hook wherever the driver is loaded: from a caller before this library it is the
   next in line, from one behind it the driver's is, which the hook stands for. */
static void *lookup_hook(void *handle, const char *name, int number) {
  const struct row *row = &rows[number];
  dlsym_function *lookup = real_dlsym();
  if (lookup == NULL) return NULL;
  if (handle == RTLD_NEXT) return lookup_behind(row);
  void *address = lookup(handle, name);
  if (address == row->hook) return lookup_behind(row);
  if (address == NULL || atomic_load_explicit(&beside_shim, memory_order_relaxed)) return address;
  return is_drivers(file_of(address), (enum library)row->library) ? row->hook : address;
}

#if defined(__clang__)
#define TAIL_CALL __attribute__((musttail)) return
#else
#define TAIL_CALL return
#endif

TESSERA_EXPORT void *dlsym(void *restrict handle, const char *restrict name);

TESSERA_EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
  if (may_be_ours(name)) {
    int number = find_symbol(name);
    if (number >= 0 && !is_asked_by_driver(__builtin_return_address(0)))
      return lookup_hook(handle, name, number);
  }
  dlsym_function *lookup = real_dlsym();
  if (lookup == NULL) return NULL;
  TAIL_CALL lookup(handle, name);
}
#endif
