/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a card and green contexts (CUDA driver API manual, "Green Contexts"): contexts that have some of
 * the SMs, and are the device's primary one otherwise: memory and modules that are made in one are the primary
 * one's. A kernel takes the same device time in them as elsewhere, and one runs at a time (simplifications).
 * What a green context takes of the card isn't documented; a guess: an eighth of a whole context.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { RESOURCE_SM = 1 };
enum { GREEN_DEFAULT_STREAM = 1 };
enum { SPLIT_IGNORE_COSCHEDULING = 1, SPLIT_LARGEST_CLUSTERS = 2 };
#define CONTEXT_PART 8u

struct CUdevResourceDesc_st {
  struct object object;
  uint32_t card;
  unsigned sm_count;
};

struct CUgreenCtx_st {
  struct object object;
  CUcontext context;
  CUdevice device;
};

static struct object *spare, *spare_descriptions;

static bool green_alive(CUgreenCtx green) { return green != NULL && green->object.magic == MAGIC_GREEN; }

/* The manual's table: smallest part and alignment by compute capability. */
static CUdevSmResource sms_of(uint32_t card, unsigned count) {
  unsigned major = member_state()->cards[card].compute_major;
  CUdevSmResource sms = {.sm_count = count, .smallest_part = 8, .alignment = 8};
  if (major == 8) {
    sms.smallest_part = 4;
    sms.alignment = 2;
  } else if (major < 8) {
    sms.smallest_part = sms.alignment = major == 7 ? 2 : 1;
  }
  return sms;
}

static CUdevResource resource_of(uint32_t card, unsigned count) {
  CUdevResource resource = {.type = RESOURCE_SM, .sm = sms_of(card, count)};
  memcpy(resource.card, &card, sizeof card);
  return resource;
}

static uint32_t card_of(const CUdevResource *resource) {
  uint32_t card = 0;
  memcpy(&card, resource->card, sizeof card);
  return card;
}

static bool is_part(const CUdevResource *resource) {
  return resource != NULL && resource->type == RESOURCE_SM && card_of(resource) < FAKEGPU_UNITS &&
         resource->sm.sm_count != 0;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, unsigned type) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const struct device *found = device_at(device);
  if (found == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (resource == NULL || type != RESOURCE_SM) return CUDA_ERROR_INVALID_VALUE;
  *resource = resource_of(found->card, member_state()->cards[found->card].sms);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, unsigned type) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult result = cuDeviceGetDevResource(context->device, resource, type);
  if (result == CUDA_SUCCESS && context->green != NULL)
    *resource = resource_of(context->card, context->sm_count);
  return result;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, unsigned type) {
  if (!green_alive(green)) return CUDA_ERROR_INVALID_VALUE;
  return cuCtxGetDevResource(green->context, resource, type);
}

CUresult cuStreamGetDevResource(CUstream handle, CUdevResource *resource, unsigned type) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  return result == CUDA_SUCCESS ? cuCtxGetDevResource(context, resource, type) : result;
}

static unsigned up_to(unsigned number, unsigned step) { return (number + step - 1) / step * step; }

/* Groups of at least `smallest` each, as many as asked for and there are; the rest remains. `groups` NULL:
 * only how many there would be. */
CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *count, const CUdevResource *input,
                                     CUdevResource *remaining, unsigned flags, unsigned smallest) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == NULL || !is_part(input) || flags > (SPLIT_IGNORE_COSCHEDULING | SPLIT_LARGEST_CLUSTERS) ||
      smallest > input->sm.sm_count)
    return CUDA_ERROR_INVALID_VALUE;
  uint32_t card = card_of(input);
  CUdevSmResource rule = sms_of(card, input->sm.sm_count);
  bool free_form = (flags & SPLIT_IGNORE_COSCHEDULING) != 0;
  unsigned least = free_form ? 2u : rule.smallest_part, step = free_form ? 2u : rule.alignment;
  unsigned each = up_to(smallest < least ? least : smallest, step);
  unsigned most = input->sm.sm_count / each, made = groups == NULL || most < *count ? most : *count;
  if (made == 0) return CUDA_ERROR_INVALID_VALUE; /* a guess: the manual names no error for it */
  for (unsigned index = 0; groups != NULL && index < made; index++) groups[index] = resource_of(card, each);
  *count = made;
  unsigned rest = input->sm.sm_count - made * each;
  if (remaining != NULL)
    *remaining = rest == 0 ? (CUdevResource){.type = 0} : resource_of(card, rest);
  return CUDA_SUCCESS;
}

/* Groups of sizes of their own; a wish of 0 is for the smallest. With `groups` NULL only the sizes are told. */
CUresult cuDevSmResourceSplit(CUdevResource *groups, unsigned count, const CUdevResource *input,
                              CUdevResource *remaining, unsigned flags,
                              CU_DEV_SM_RESOURCE_GROUP_PARAMS *wishes) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == 0 || !is_part(input) || flags != 0 || wishes == NULL) return CUDA_ERROR_INVALID_VALUE;
  uint32_t card = card_of(input);
  unsigned left = input->sm.sm_count;
  CUdevSmResource rule = sms_of(card, left);
  for (unsigned index = 0; index < count; index++) {
    unsigned wanted = wishes[index].sm_count == 0 ? rule.smallest_part : wishes[index].sm_count;
    if (wanted > left || wanted < rule.smallest_part || wanted % rule.alignment != 0)
      return CUDA_ERROR_INVALID_VALUE;
    left -= wanted;
    wishes[index].sm_count = wanted;
    if (groups != NULL) groups[index] = resource_of(card, wanted);
  }
  if (remaining != NULL) *remaining = left == 0 ? (CUdevResource){.type = 0} : resource_of(card, left);
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *made, CUdevResource *resources, unsigned count) {
  unsigned sms = 0;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (made == NULL || resources == NULL || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned index = 0; index < count; index++) {
    if (!is_part(&resources[index]) || card_of(&resources[index]) != card_of(&resources[0]))
      return CUDA_ERROR_INVALID_VALUE;
    sms += resources[index].sm.sm_count;
  }
  driver_lock();
  CUdevResourceDesc description = object_new(&spare_descriptions, sizeof *description, MAGIC_GREEN);
  if (description != NULL) {
    description->card = card_of(&resources[0]);
    description->sm_count = sms;
    *made = description;
  }
  driver_unlock();
  return description == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Under driver_lock, with the primary context retained. */
static CUresult create(CUdevResourceDesc description, CUdevice device, CUgreenCtx *made) {
  CUgreenCtx green = object_new(&spare, sizeof *green, MAGIC_GREEN);
  if (green == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t bytes = memory_rounded(member_state()->driver.context_bytes / CONTEXT_PART);
  CUresult result = context_new(device, bytes, &green->context);
  if (result != CUDA_SUCCESS) {
    object_drop(&spare, green);
    return result;
  }
  green->device = device;
  green->context->green = green;
  green->context->sm_count = description->sm_count;
  *made = green;
  return CUDA_SUCCESS;
}

/* The manual: it retains the device's primary context for as long as it lives. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device, unsigned flags) {
  CUcontext primary = NULL;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  const struct device *found = device_at(device);
  if (found == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (green == NULL || flags != GREEN_DEFAULT_STREAM || description == NULL ||
      description->object.magic != MAGIC_GREEN || description->card != found->card)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuDevicePrimaryCtxRetain(&primary, device);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  result = create(description, device, green);
  driver_unlock();
  if (result != CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(device);
  return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!green_alive(green)) return CUDA_ERROR_INVALID_VALUE;
  CUdevice device = green->device;
  driver_lock();
  context_end(green->context);
  object_drop(&spare, green);
  driver_unlock();
  return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (context == NULL || !green_alive(green)) return CUDA_ERROR_INVALID_VALUE;
  *context = green->context;
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id) {
  if (!green_alive(green)) return CUDA_ERROR_INVALID_VALUE;
  return cuCtxGetId(green->context, id);
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!green_alive(green) || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuCtxPushCurrent_v2(green->context);
  if (result != CUDA_SUCCESS) return result;
  result = cuStreamCreateWithPriority(stream, flags, priority);
  cuCtxPopCurrent_v2(NULL);
  return result;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green) {
  CUcontext context = NULL;
  if (green == NULL) return CUDA_ERROR_INVALID_VALUE;
  return cuStreamGetCtx_v2(stream, &context, green);
}

/* An event for all that a context has before it: its legacy stream with those that don't wait for it. */
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  struct CUstream_st all = {.object = {.magic = MAGIC_STREAM},
                            .context = context,
                            .context_id = context->id,
                            .newest = context->newest};
  return cuEventRecord(event, &all);
}

/* All of the context's work from now on comes after the event: launch order sees to that on one card. */
CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!context_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  struct CUstream_st all = {
      .object = {.magic = MAGIC_STREAM}, .context = context, .context_id = context->id};
  return cuStreamWaitEvent(&all, event, 0);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
  return green_alive(green) ? cuCtxRecordEvent(green->context, event) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
  return green_alive(green) ? cuCtxWaitEvent(green->context, event) : CUDA_ERROR_INVALID_VALUE;
}
