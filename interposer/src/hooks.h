/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tables become: prototypes of the hooks, their numbers, and typed ways to the real functions.
 *
 *   REAL(symbol)(…)    the driver's own function behind a hook
 *   DRIVER(symbol)(…)  the same for functions that are not hooked
 * Where the driver has none, both lead to a function that answers NOT_FOUND.
 *
 * Both bind the driver's library on first use (resolve.c). */
#ifndef TESSERA_HOOKS_H
#define TESSERA_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_types.h"
#include "grants.h"
#include "nvml_types.h"

#define TESSERA_EXPORT __attribute__((visibility("default")))
#define TESSERA_HIDDEN __attribute__((visibility("hidden")))

#define CUDA_HOOK(symbol, base, since, per_thread, policy, parameters) \
  typedef CUresult function_##symbol parameters;                       \
  TESSERA_EXPORT CUresult symbol parameters;
#define NVML_HOOK(symbol, policy, parameters)        \
  typedef nvmlReturn_t function_##symbol parameters; \
  TESSERA_EXPORT nvmlReturn_t symbol parameters;
#include "hooks_table.inc"
#undef CUDA_HOOK
#undef NVML_HOOK

#define DRIVER_CALL(symbol, parameters) typedef CUresult function_##symbol parameters;
#define NVML_CALL(symbol, parameters) typedef nvmlReturn_t function_##symbol parameters;
#include "driver_table.inc"
#undef DRIVER_CALL
#undef NVML_CALL

enum hook {
#define CUDA_HOOK(symbol, base, since, per_thread, policy, parameters) HOOK_##symbol,
#define NVML_HOOK(symbol, policy, parameters) HOOK_##symbol,
#include "hooks_table.inc"
#undef CUDA_HOOK
#undef NVML_HOOK
  HOOK_COUNT,
#define DRIVER_CALL(symbol, parameters) CALL_##symbol,
#define NVML_CALL(symbol, parameters) CALL_##symbol,
#include "driver_table.inc"
#undef DRIVER_CALL
#undef NVML_CALL
  ADDRESS_COUNT
};

enum library { LIBRARY_CUDA, LIBRARY_NVML, LIBRARY_COUNT };

/* Real addresses by number; NULL: not looked up yet. */
extern TESSERA_HIDDEN _Atomic(void *) real_address[ADDRESS_COUNT];

/* Looks it up, in the driver's library, which is found (and loaded where nobody has) the first time. */
TESSERA_HIDDEN void *bind_address(int number);

/* Tells builds of the driver apart; 0: not known. */
TESSERA_HIDDEN uint64_t driver_build(void);

/* Whether the driver has the function at all. */
TESSERA_HIDDEN bool driver_has(int number);

static inline void *bound_address(int number) {
  void *address = atomic_load_explicit(&real_address[number], memory_order_acquire);
  return __builtin_expect(address != NULL, 1) ? address : bind_address(number);
}

/* cuGetProcAddress's answer for `name`: the hook, where it is the very function that a hook wraps; else
 * itself. */
TESSERA_HIDDEN void *hook_for_answer(const char *name, void *answer, uint64_t flags);

/* Whether the driver that this process has found is the library's other form, which keeps the limits itself.
 * May load the driver, so no lock may be held. */
TESSERA_HIDDEN bool shim_stands_in(void);

/* In a forked child: no lock of the hooks is held. */
TESSERA_HIDDEN void hooks_reset(void);

#define REAL(symbol) ((function_##symbol *)bound_address(HOOK_##symbol))
/* NULL: not looked up yet. */
#define KNOWN_REAL(symbol) \
  ((function_##symbol *)atomic_load_explicit(&real_address[HOOK_##symbol], memory_order_acquire))
#define DRIVER(symbol) ((function_##symbol *)bound_address(CALL_##symbol))
#define REAL_NVML(symbol) ((function_##symbol *)bound_address(HOOK_##symbol))
#define NVML(symbol) ((function_##symbol *)bound_address(CALL_##symbol))

/* Set while the driver works for a hook of this thread: a driver that calls its own exported functions by
   name comes to hooks again, which then only pass the call on. */
extern TESSERA_HIDDEN __thread bool inside_driver;

/* Whether a call goes on as it came. Where there are no grants too: so it is beside a shim, where a program that
   is linked with the driver comes through both libraries. */
static inline bool passes_on(void) { return inside_driver || grants_are_none(); }

#define IN_DRIVER(call)        \
  ({                           \
    inside_driver = true;      \
    CUresult result_ = (call); \
    inside_driver = false;     \
    result_;                   \
  })

#endif
