/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: made, current per thread, destroyed with all that they hold.
 */
#include "driver.h"

#include <string.h>

#define STACK 64
#define VERSION_LEGACY 3010u
#define VERSION_NOW 3020u

static struct object *spare;
static uint64_t contexts_made;

/* A thread may have a context current that another one has destroyed: the id tells. */
struct current {
  CUcontext context;
  uint64_t id;
};
static _Thread_local struct current stack[STACK];
static _Thread_local unsigned depth;

bool context_alive(CUcontext context) { return context != NULL && context->object.magic == MAGIC_CONTEXT; }

CUresult context_current(CUcontext *context) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (depth == 0 || stack[depth - 1].context == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  const struct current *top = &stack[depth - 1];
  if (!context_alive(top->context) || top->context->id != top->id) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = top->context;
  return card_answers((*context)->card);
}

/* Which error the calls of a running process get once its card is off the bus is a guess. */
CUresult card_answers(uint32_t card) {
  return unit_is_lost(member_state(), card) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static void set_limits(CUcontext context) {
  static const size_t defaults[LIMITS] = {1024, 1u << 20, 8u << 20, 2, 2048, 64, 0, 0, 0, 0};
  memcpy(context->limits, defaults, sizeof defaults);
}

/* A new context and its share of the card, or the driver's refusal. Under driver_lock. */
static CUresult create(CUdevice ordinal, unsigned flags, unsigned api_version, uint64_t bytes,
                       CUcontext *made) {
  const struct device *device = device_at(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext context = object_new(&spare, sizeof *context, MAGIC_CONTEXT);
  if (context == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  context->device = ordinal;
  context->card = device->card;
  context->flags = flags;
  context->api_version = api_version;
  context->id = ++contexts_made;
  set_limits(context);
  state_lock();
  bool fits = memory_take(device->card, bytes);
  if (fits) member_slot()->contexts[device->card]++;
  state_unlock();
  if (!fits) {
    object_drop(&spare, context);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  context->charged = bytes;
  *made = context;
  return CUDA_SUCCESS;
}

static CUresult create_whole(CUdevice ordinal, unsigned flags, unsigned api_version, CUcontext *made) {
  const struct driver_config *driver = &member_state()->driver;
  CUresult result = create(ordinal, flags, api_version, driver->context_bytes, made);
  if (result == CUDA_SUCCESS) clock_sleep(driver->context_ns);
  return result;
}

CUresult context_new(CUdevice device, uint64_t bytes, CUcontext *made) {
  return create(device, 0, VERSION_NOW, bytes, made);
}

/* Work of the context that still runs goes on in the timeline; the real driver would wait or kill it. */
static void destroy(CUcontext context) {
  modules_drop(context);
  streams_drop(context);
  blocks_drop(context);
  state_lock();
  memory_give(context->card, context->charged);
  member_slot()->contexts[context->card]--;
  state_unlock();
  object_drop(&spare, context);
}

void context_end(CUcontext context) { destroy(context); }

CUcontext context_owner(CUcontext context) {
  return context->green == NULL ? context : device_at(context->device)->primary;
}

static CUresult push(CUcontext context) {
  if (depth == STACK) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = (struct current){.context = context, .id = context == NULL ? 0 : context->id};
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (context != NULL && !context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  depth--;
  if (context != NULL) *context = stack[depth].context;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == NULL) {
    if (depth > 0) depth--; /* the manual: NULL pops the top of the stack */
    return CUDA_SUCCESS;
  }
  if (!context_alive(context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (depth == 0) return push(context);
  stack[depth - 1] = (struct current){.context = context, .id = context->id};
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
  *context = depth == 0 ? NULL : stack[depth - 1].context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }
CUresult cuCtxPopCurrent(CUcontext *context) { return cuCtxPopCurrent_v2(context); }

static CUresult create_and_push(CUcontext *context, unsigned flags, CUdevice device, unsigned api_version) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUcontext made = NULL;
  CUresult result = create_whole(device, flags, api_version, &made);
  driver_unlock();
  if (result != CUDA_SUCCESS) return result;
  *context = made;
  return push(made);
}

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
  return create_and_push(context, flags, device, VERSION_LEGACY);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
  return create_and_push(context, flags, device, VERSION_NOW);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int affinity_count,
                        unsigned flags, CUdevice device) {
  if (affinity_count != 0 && affinities == NULL) return CUDA_ERROR_INVALID_VALUE;
  return create_and_push(context, flags, device, VERSION_NOW);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device) {
  (void)parameters; /* affinity and graphics interop change nothing here */
  return create_and_push(context, flags, device, VERSION_NOW);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  CUresult result = CUDA_SUCCESS;
  if (!context_alive(context) || context->primary || context->green != NULL)
    result = CUDA_ERROR_INVALID_CONTEXT;
  else
    destroy(context);
  driver_unlock();
  if (result == CUDA_SUCCESS && depth > 0 && stack[depth - 1].context == context) depth--;
  return result;
}

CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
  if (context == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = context_current(context);
  if (result == CUDA_SUCCESS) (*context)->references++;
  return result;
}

CUresult cuCtxDetach(CUcontext context) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->references > 0) {
    context->references--;
    return CUDA_SUCCESS;
  }
  return cuCtxDestroy_v2(context);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  struct device *device = device_at(ordinal);
  CUresult result = device == NULL ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && device->primary == NULL) {
    result = create_whole(ordinal, device->primary_flags, VERSION_NOW, &device->primary);
    if (result == CUDA_SUCCESS) device->primary->primary = true;
  }
  if (result == CUDA_SUCCESS) {
    device->primary->references++;
    *context = device->primary;
  }
  driver_unlock();
  return result;
}

static CUresult primary_drop(CUdevice ordinal, bool whatever_references) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  driver_lock();
  struct device *device = device_at(ordinal);
  CUresult result = CUDA_SUCCESS;
  if (device == NULL) {
    result = CUDA_ERROR_INVALID_DEVICE;
  } else if (device->primary == NULL) {
    result = whatever_references ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  } else if (whatever_references || --device->primary->references == 0) {
    destroy(device->primary);
    device->primary = NULL;
  }
  driver_unlock();
  return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return primary_drop(device, false); }
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return primary_drop(device, false); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return primary_drop(device, true); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return primary_drop(device, true); }

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const struct device *device = device_at(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != NULL) *flags = device->primary_flags;
  if (active != NULL) *active = device->primary != NULL;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned flags) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  struct device *device = device_at(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  device->primary_flags = flags; /* since CUDA 11 also while the context is active */
  if (device->primary != NULL) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  const struct device *found = device_at(device);
  if (found != NULL && found->primary != NULL) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
