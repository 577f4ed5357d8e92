/* SPDX-License-Identifier: Apache-2.0
 *
 * Look-ups: how a program comes to a hook, and how a hook comes to the real function.
 *
 *   linking           the hooks are exported, and a preloaded library comes before libcuda.so.1
 *   dlsym             exported here without a symbol version, so that callers linked against GLIBC_2.2.5 and
 *                     GLIBC_2.34 both land here; names that are not ours go on by a tail call, so that
 *                     RTLD_NEXT and RTLD_DEFAULT mean to libc what they meant to the caller
 *   cuGetProcAddress  the driver answers first; a hook is handed out only for the very address that it
 *                     wraps, so the caller's version and flags are honoured without knowing their rules
 *
 * Nothing is done before the first look-up or call of a name in the table: no constructor, no dlopen.
 *
 * As a shim (TESSERA_SHIM) the library is itself what programs load as libcuda.so.1 and libnvidia-ml.so.1,
 * and the driver's own are under a path that only the shim asks for. They are its dependencies, so that a
 * name without a hook is found in them, by linking and by dlsym; dlsym itself is left alone. A preloaded
 * library beside it stands aside: it is for programs that find another driver first, of their image's own. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "hooks.h"
#include "lock.h"
#include "log.h"

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
atomic_bool library_bound[LIBRARY_COUNT];
__thread bool inside_driver;

/* What cuGetProcAddress answers for a row at its own version; differs from dlsym's where the driver hands out
   entry points that it does not export. */
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

#ifndef TESSERA_SHIM
/* --- the table by name -------------------------------------------------------------------------------- */

/* Open addressing over the hooks' symbols, filled once; 1 + number, 0 is empty. */
#define INDEX_SIZE 1024u
_Static_assert(HOOK_COUNT * 2 <= INDEX_SIZE, "the index is at most half full");
static uint16_t symbol_index[INDEX_SIZE];
static atomic_bool symbol_index_ready;
static struct lock symbol_index_lock;

static unsigned int hash_name(const char *name) {
  unsigned int hash = 2166136261u;
  for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return hash ^ hash >> 15;
}

static void fill_symbol_index(void) {
  lock_take(&symbol_index_lock);
  if (!atomic_load_explicit(&symbol_index_ready, memory_order_relaxed)) {
    for (int number = 0; number < HOOK_COUNT; number++) {
      unsigned int place = hash_name(rows[number].symbol) % INDEX_SIZE;
      while (symbol_index[place] != 0) place = (place + 1) % INDEX_SIZE;
      symbol_index[place] = (uint16_t)(number + 1);
    }
    atomic_store_explicit(&symbol_index_ready, true, memory_order_release);
  }
  lock_leave(&symbol_index_lock);
}

static int find_symbol(const char *name) {
  if (!atomic_load_explicit(&symbol_index_ready, memory_order_acquire)) fill_symbol_index();
  for (unsigned int place = hash_name(name) % INDEX_SIZE; symbol_index[place] != 0;
       place = (place + 1) % INDEX_SIZE) {
    int number = symbol_index[place] - 1;
    if (strcmp(rows[number].symbol, name) == 0) return number;
  }
  return -1;
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

#ifdef TESSERA_SHIM
TESSERA_EXPORT extern const char tessera_shim;
const char tessera_shim = 1; /* found by its name */

static bool is_shim(void *handle) {
  (void)handle; /* what this one binds is the driver's own */
  return false;
}

bool shim_stands_in(void) { return false; }
#else
static bool is_shim(void *handle) {
  dlsym_function *lookup = real_dlsym();
  return handle != NULL && lookup != NULL && lookup(handle, "tessera_shim") != NULL;
}

bool shim_stands_in(void) {
  void *cuda = loaded_library(LIBRARY_CUDA), *nvml = loaded_library(LIBRARY_NVML);
  if (cuda == NULL && nvml == NULL) cuda = dlopen(sonames[LIBRARY_CUDA], RTLD_LAZY);
  return is_shim(cuda) || is_shim(nvml);
}
#endif

static void *absent(enum library library) {
  return library == LIBRARY_CUDA ? (void *)absent_in_cuda : (void *)absent_in_nvml;
}

static void *address_of(int number) {
  return atomic_load_explicit(&real_address[number], memory_order_relaxed);
}

bool driver_has(int number) {
  enum library library = (enum library)rows[number].library;
  return bound_address(library, number) != absent(library);
}

/* Entry points that the driver hands out but does not export under the same address. */
static void ask_for_answers(void) {
  void *old = address_of(HOOK_cuGetProcAddress), *new = address_of(HOOK_cuGetProcAddress_v2);
  bool has_old = old != (void *)absent_in_cuda, has_new = new != (void *)absent_in_cuda;
  if (!has_old && !has_new) return;
  for (int number = 0; number < HOOK_COUNT; number++) {
    const struct row *row = &rows[number];
    if (row->base == NULL) continue;
    uint64_t flags =
        row->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
    void *answer = NULL;
    int found = 0;
    CUresult result =
        has_new ? ((function_cuGetProcAddress_v2 *)new)(row->base, &answer, row->since, flags, &found)
                : ((function_cuGetProcAddress *)old)(row->base, &answer, row->since, flags);
    if (result != CUDA_SUCCESS || answer == NULL) continue;
    atomic_store_explicit(&answered_address[number], answer, memory_order_relaxed);
  }
}

/* Threads that come at the same time all do this and write the same values: a lock held over dlopen would
   wait for the loader's, which a thread may hold whose library's constructor calls us. */
void bind_library(enum library library) {
  void *handle = loaded_library(library);
  if (handle == NULL) handle = dlopen(sonames[library], RTLD_LAZY);
  dlsym_function *lookup = real_dlsym();
  for (int number = 0; number < ADDRESS_COUNT; number++) {
    if (rows[number].library != library) continue;
    void *address = handle != NULL && lookup != NULL ? lookup(handle, rows[number].symbol) : NULL;
    if (address == NULL) address = absent(library);
    atomic_store_explicit(&real_address[number], address, memory_order_relaxed);
  }
  log_debug("%s: %s", sonames[library], handle != NULL ? "bound" : "not to be loaded");
  if (is_shim(handle)) atomic_store_explicit(&beside_shim, true, memory_order_relaxed);
  if (library == LIBRARY_CUDA) ask_for_answers();
  /* The handle stays open: real addresses must not go away under a program that closes its own. */
  atomic_store_explicit(&library_bound[library], true, memory_order_release);
}

/* A row's address is matched, not its version's number: what the driver answers for a version that this table
   does not know yet is another address, and goes through untouched. */
void *hook_for_answer(const char *name, void *answer, uint64_t flags) {
  int match = -1;
  if (!may_be_ours(name) || atomic_load_explicit(&beside_shim, memory_order_relaxed)) return answer;
  for (int number = 0; number < HOOK_COUNT; number++) {
    const struct row *row = &rows[number];
    if (row->base == NULL || (strcmp(row->base, name) != 0 && strcmp(row->symbol, name) != 0)) continue;
    if (answer != address_of(number) &&
        answer != atomic_load_explicit(&answered_address[number], memory_order_relaxed))
      continue;
    /* A driver may use one address for both kinds of default stream: the one that was asked for comes first.
     */
    bool wanted = row->per_thread == (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    if (match < 0 || wanted) match = number;
  }
  return match >= 0 ? rows[match].hook : answer;
}

#ifndef TESSERA_SHIM
/* --- dlsym -------------------------------------------------------------------------------------------- */

/* Whether an address belongs to a driver library (any copy of it), to this library, or to somebody else. */
enum owner { OWNER_DRIVER, OWNER_HOOK, OWNER_OTHER };

static enum owner owner_of(void *address, enum library library, void *hook) {
  Dl_info info;
  if (address == hook) return OWNER_HOOK;
  if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return OWNER_OTHER;
  const char *file = strrchr(info.dli_fname, '/');
  file = file != NULL ? file + 1 : info.dli_fname;
  return strncmp(file, stems[library], strlen(stems[library])) == 0 ? OWNER_DRIVER : OWNER_OTHER;
}

/* A name of the table. An absent name stays absent, somebody else's function of that name stays his; for
   RTLD_NEXT the answer is the hook wherever the driver is loaded: from a caller before this library it is the
   next in line, from one behind it the driver's is, which the hook stands for. */
static void *lookup_hook(void *handle, const char *name, int number) {
  const struct row *row = &rows[number];
  enum library library = (enum library)row->library;
  dlsym_function *lookup = real_dlsym();
  if (lookup == NULL) return NULL;
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
    void *driver = loaded_library(library);
    if (driver == NULL || lookup(driver, name) == NULL) return lookup(RTLD_NEXT, name);
    return row->hook;
  }
  void *address = lookup(handle, name);
  if (address == NULL) return NULL;
  if (atomic_load_explicit(&beside_shim, memory_order_relaxed)) return address;
  if (owner_of(address, library, row->hook) == OWNER_OTHER) return address;
  return row->hook;
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
    if (number >= 0) return lookup_hook(handle, name, number);
  }
  dlsym_function *lookup = real_dlsym();
  if (lookup == NULL) return NULL;
  TAIL_CALL lookup(handle, name);
}
#endif
