/* SPDX-License-Identifier: Apache-2.0
 *
 * Start, look-up, contexts, and the views of a card's memory. The driver is always asked first: its errors
 * and its way with NULL pointers are the answer, only the figures of a success are the share's. */
#include <string.h>

#include "context_kind.h"
#include "grants.h"
#include "hooks.h"
#include "log.h"
#include "memory.h"
#include "overhead.h"
#include "pools.h"
#include "samples.h"

#define DEVICES 128

/* A grant that can't be read must not mean that there is no limit. */
CUresult cuInit(unsigned int flags) {
  if (grants_load() == GRANTS_BROKEN) {
    log_error("CUDA is not started: the grants in " TESSERA_GRANTS_DIRECTORY " can't be honoured");
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  CUresult result = REAL(cuInit)(flags);
  if (result == CUDA_SUCCESS) grants_map_devices();
  return result;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  CUresult result = REAL(cuGetProcAddress)(name, function, version, flags);
  if (result == CUDA_SUCCESS && name != NULL && *function != NULL)
    *function = hook_for_answer(name, *function, flags);
  return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
  CUresult result = REAL(cuGetProcAddress_v2)(name, function, version, flags, found);
  if (result == CUDA_SUCCESS && name != NULL && *function != NULL)
    *function = hook_for_answer(name, *function, flags);
  return result;
}

/* --- views -------------------------------------------------------------------------------------------- */

static unsigned int narrowed(uint64_t bytes) { return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX; }

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
  const struct card *card = result == CUDA_SUCCESS && bytes != NULL ? card_of_device(device) : NULL;
  if (card != NULL) *bytes = card_total(card);
  return result;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device) {
  CUresult result = REAL(cuDeviceTotalMem)(bytes, device);
  const struct card *card = result == CUDA_SUCCESS && bytes != NULL ? card_of_device(device) : NULL;
  if (card != NULL) *bytes = narrowed(card_total(card));
  return result;
}

/* The card for a view by a process with a context: which has a slot, so that the sum costs no system call. */
static struct card *card_for_view(CUresult result) {
  struct card *card = result == CUDA_SUCCESS ? card_of_thread() : NULL;
  if (card == NULL) return NULL;
  for (uint32_t i = 0; i < card->count; i++) region_slot(&card->grants[i]->region);
  pools_settle(card);
  return card;
}

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
  if (passes_on()) return REAL(cuMemGetInfo_v2)(available, total);
  CUresult result = REAL(cuMemGetInfo_v2)(available, total);
  struct card *card = card_for_view(result);
  if (card == NULL) return result;
  struct card_view view = card_view(card, available != NULL ? *available : 0);
  if (available != NULL) *available = view.available;
  if (total != NULL) *total = view.total;
  return result;
}

CUresult cuMemGetInfo(unsigned int *available, unsigned int *total) {
  if (passes_on()) return REAL(cuMemGetInfo)(available, total);
  CUresult result = REAL(cuMemGetInfo)(available, total);
  struct card *card = card_for_view(result);
  if (card == NULL) return result;
  /* The 32-bit figure of a larger card says nothing about what is free there. */
  struct card_view view = card_view(card, UINT64_MAX);
  if (available != NULL) *available = narrowed(view.available);
  if (total != NULL) *total = narrowed(view.total);
  return result;
}

/* --- contexts ----------------------------------------------------------------------------------------- */

/* The end of a context frees all its blocks without another call. Primary contexts go by their device. The lock
   is held over each call that may begin or end one: the second to retain it must find the first's active. */
static struct primary {
  _Atomic(CUcontext) context; /* NULL: there is none */
  struct lock lock;
  _Atomic uint32_t users; /* how often the program retains it, as far as has been seen */
} primaries[DEVICES];

/* The first's also for a device that there is not, of which the driver knows nothing either. */
static struct primary *primary_at(CUdevice device) {
  return &primaries[device >= 0 && device < DEVICES ? device : 0];
}

static CUcontext primary_of(CUdevice device) {
  return atomic_load_explicit(&primary_at(device)->context, memory_order_relaxed);
}

static void primary_is_retained(CUdevice device, CUcontext context) {
  atomic_store_explicit(&primary_at(device)->context, context, memory_order_relaxed);
  atomic_fetch_add_explicit(&primary_at(device)->users, 1, memory_order_relaxed);
}

static bool primary_is_active(CUdevice device, unsigned int *flags) {
  int active = 0;
  return DRIVER(cuDevicePrimaryCtxGetState)(device, flags, &active) == CUDA_SUCCESS && active;
}

static CUresult first_retain(CUcontext *context, CUdevice device, struct card *card, unsigned int flags) {
  struct overhead overhead;
  uint32_t kind = context_kind(HOOK_cuDevicePrimaryCtxRetain, flags);
  if (!overhead_begin(&overhead, card, REGION_CONTEXTS, kind)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = IN_DRIVER(REAL(cuDevicePrimaryCtxRetain)(context, device));
  CUcontext made = result == CUDA_SUCCESS ? *context : NULL;
  if (overhead_end(&overhead, result, BLOCK_CONTEXT, (uint64_t)(uintptr_t)made, made)) return result;
  if (driver_has(HOOK_cuDevicePrimaryCtxRelease_v2))
    IN_DRIVER(REAL(cuDevicePrimaryCtxRelease_v2)(device));
  else
    IN_DRIVER(REAL(cuDevicePrimaryCtxRelease)(device));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  CUresult result;
  unsigned int flags = 0;
  struct card *card = inside_driver || context == NULL ? NULL : card_of_device(device);
  if (card == NULL) {
    result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result == CUDA_SUCCESS && context != NULL) primary_is_retained(device, *context);
    context_kind(HOOK_cuDevicePrimaryCtxRetain, 0); /* the next context isn't the first */
  } else {
    lock_take(&primary_at(device)->lock);
    result = primary_is_active(device, &flags) ? IN_DRIVER(REAL(cuDevicePrimaryCtxRetain)(context, device))
                                               : first_retain(context, device, card, flags);
    if (result == CUDA_SUCCESS) primary_is_retained(device, *context);
    lock_leave(&primary_at(device)->lock);
  }
  return result;
}

/* A fork may come while another thread holds one. */
void hooks_reset(void) { memset(primaries, 0, sizeof primaries); }

/* `special`: made with more than flags, so no other process's is like it. */
#define CONTEXT_CREATE(symbol, parameters, arguments, special)                                          \
  CUresult symbol parameters {                                                                          \
    struct overhead overhead;                                                                           \
    if (inside_driver || context == NULL) return REAL(symbol) arguments;                                \
    struct card *card = card_of_device(device);                                                         \
    uint32_t first = context_kind(HOOK_##symbol, flags), kind = (special) ? 0 : first;                  \
    if (!overhead_begin(&overhead, card, REGION_CONTEXTS, kind)) return CUDA_ERROR_OUT_OF_MEMORY;       \
    CUresult result = IN_DRIVER(REAL(symbol) arguments);                                                \
    CUcontext made = result == CUDA_SUCCESS ? *context : NULL;                                          \
    if (overhead_end(&overhead, result, BLOCK_CONTEXT, (uint64_t)(uintptr_t)made, made)) return result; \
    IN_DRIVER(REAL(cuCtxDestroy_v2)(made));                                                             \
    *context = NULL;                                                                                    \
    return CUDA_ERROR_OUT_OF_MEMORY;                                                                    \
  }
CONTEXT_CREATE(cuCtxCreate, (CUcontext * context, unsigned int flags, CUdevice device),
               (context, flags, device), false)
CONTEXT_CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned int flags, CUdevice device),
               (context, flags, device), false)
CONTEXT_CREATE(cuCtxCreate_v3,
               (CUcontext * context, void *affinities, int count, unsigned int flags, CUdevice device),
               (context, affinities, count, flags, device), count != 0)
CONTEXT_CREATE(cuCtxCreate_v4, (CUcontext * context, void *parameters, unsigned int flags, CUdevice device),
               (context, parameters, flags, device), parameters != NULL)

/* Whose handle no context has. While a context ends, what it holds is a stand-in's: the driver may give its handle
   to another thread's context before the call returns. */
#define STAND_IN ((CUcontext)(void *)&(int){0})

/* Before a call with which `users` may be left of a primary context. Whose its blocks are then. */
static CUcontext primary_may_end(CUdevice device, uint32_t users, CUcontext stand_in) {
  CUcontext context = primary_of(device);
  if (context == NULL || users != 0) return context;
  memory_context_joins(context, stand_in);
  return stand_in;
}

/* Behind it. Whether it has ended, or is `empty`: a reset leaves it retained. */
static bool primary_looked(CUdevice device, CUcontext holder, bool empty) {
  unsigned int flags;
  int active = 1;
  CUcontext context = primary_of(device);
  if (context == NULL) return false;
  DRIVER(cuDevicePrimaryCtxGetState)(device, &flags, &active);
  if (!active) atomic_store_explicit(&primary_at(device)->context, NULL, memory_order_relaxed);
  if (!active) atomic_store_explicit(&primary_at(device)->users, 0, memory_order_relaxed);
  if (!active || empty)
    memory_context_ended(holder);
  else if (holder != context)
    memory_context_joins(holder, context);
  return !active || empty;
}

static CUresult end_primary(function_cuDevicePrimaryCtxRelease_v2 *end, CUdevice device, bool resets) {
  struct primary *primary = primary_at(device);
  CUcontext context = primary_of(device);
  samples_context_may_end(context);
  lock_take(&primary->lock);
  uint32_t users = resets ? 0 : atomic_load_explicit(&primary->users, memory_order_relaxed);
  if (users != 0) users--;
  CUcontext holder = primary_may_end(device, users, STAND_IN);
  CUresult result = IN_DRIVER(end(device));
  if (result == CUDA_SUCCESS && !resets) atomic_store_explicit(&primary->users, users, memory_order_relaxed);
  bool has_ended = primary_looked(device, holder, resets && result == CUDA_SUCCESS);
  lock_leave(&primary->lock);
  samples_context_looked(context, has_ended);
  return result;
}

#define PRIMARY_END(symbol, resets)                                                        \
  CUresult symbol(CUdevice device) {                                                       \
    return passes_on() ? REAL(symbol)(device) : end_primary(REAL(symbol), device, resets); \
  }
PRIMARY_END(cuDevicePrimaryCtxRelease, false)
PRIMARY_END(cuDevicePrimaryCtxRelease_v2, false)
PRIMARY_END(cuDevicePrimaryCtxReset, true)
PRIMARY_END(cuDevicePrimaryCtxReset_v2, true)

static CUresult end_context(function_cuCtxDestroy_v2 *end, CUcontext context) {
  CUcontext stand_in = STAND_IN;
  samples_context_may_end(context);
  memory_context_joins(context, stand_in);
  CUresult result = IN_DRIVER(end(context));
  samples_context_looked(context, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS)
    memory_context_ended(stand_in);
  else
    memory_context_joins(stand_in, context);
  return result;
}

#define CONTEXT_END(symbol)                                                          \
  CUresult symbol(CUcontext context) {                                               \
    return passes_on() ? REAL(symbol)(context) : end_context(REAL(symbol), context); \
  }
CONTEXT_END(cuCtxDestroy)
CONTEXT_END(cuCtxDestroy_v2)

/* A part of a card's processors, else its primary context, which the driver retains for it: that is charged as
   what it is, whoever comes first. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice device, unsigned int flags) {
  struct overhead overhead;
  CUcontext context;
  if (passes_on() || green == NULL) return REAL(cuGreenCtxCreate)(green, resources, device, flags);
  CUresult result = cuDevicePrimaryCtxRetain(&context, device);
  if (result != CUDA_SUCCESS) return result;
  if (overhead_begin(&overhead, card_of_device(device), REGION_CONTEXTS, 0)) {
    result = IN_DRIVER(REAL(cuGreenCtxCreate)(green, resources, device, flags));
    uint64_t number = result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*green : 0;
    if (!overhead_end(&overhead, result, BLOCK_CONTEXT, number, NULL)) {
      IN_DRIVER(REAL(cuGreenCtxDestroy)(*green));
      *green = NULL;
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  } else {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  cuDevicePrimaryCtxRelease_v2(device);
  return result;
}

/* The device of a green context, and itself as any other; -1, NULL: it is none. What was allocated in it is the
   primary one's from then on. */
static CUdevice leave_green(CUgreenCtx green, CUcontext *left) {
  CUcontext context = NULL;
  CUdevice device = -1;
  *left = NULL;
  if (DRIVER(cuCtxFromGreenCtx)(&context, green) != CUDA_SUCCESS) return -1;
  if (DRIVER(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) return -1;
  if (DRIVER(cuCtxGetDevice)(&device) != CUDA_SUCCESS) device = -1;
  DRIVER(cuCtxPopCurrent_v2)(&context);
  CUcontext into = primary_of(device);
  if (into != NULL) memory_context_joins(context, into);
  *left = context;
  return device;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  struct block block;
  if (passes_on()) return REAL(cuGreenCtxDestroy)(green);
  CUcontext context;
  CUdevice device = leave_green(green, &context);
  struct primary *primary = primary_at(device);
  CUcontext primary_one = primary_of(device);
  bool known = memory_take(BLOCK_CONTEXT, (uint64_t)(uintptr_t)green, &block);
  samples_context_may_end(context);
  samples_context_may_end(primary_one);
  lock_take(&primary->lock);
  uint32_t users = atomic_load_explicit(&primary->users, memory_order_relaxed);
  CUcontext holder = primary_may_end(device, users, STAND_IN);
  CUresult result = IN_DRIVER(REAL(cuGreenCtxDestroy)(green));
  if (known) memory_released(&block, result);
  bool has_ended = primary_looked(device, holder, false);
  lock_leave(&primary->lock);
  samples_context_looked(context, result == CUDA_SUCCESS);
  samples_context_looked(primary_one, has_ended);
  return result;
}

/* CUDA 2's count of users: where nobody ever added one, the first detach is the end. */
static atomic_bool attached;

CUresult cuCtxAttach(CUcontext *context, unsigned int flags) {
  atomic_store_explicit(&attached, true, memory_order_relaxed);
  return REAL(cuCtxAttach)(context, flags);
}

CUresult cuCtxDetach(CUcontext context) {
  bool stays = passes_on() || atomic_load_explicit(&attached, memory_order_relaxed);
  return stays ? REAL(cuCtxDetach)(context) : end_context(REAL(cuCtxDetach), context);
}
