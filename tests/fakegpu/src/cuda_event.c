/* SPDX-License-Identifier: Apache-2.0
 *
 * Events: a place in the process's queue, and the moment at which the card reached it.
 */
#include "driver.h"

static struct object *spare;
static CUevent watched; /* recorded events whose moment is not known yet */

bool event_alive(CUevent event) { return event != NULL && event->object.magic == MAGIC_EVENT; }

/* True once the card has reached the event; then its moment is noted. */
static bool reached(CUevent event) {
  if (event->shared != NULL) return event_share_reached(event);
  if (event->done_ns != 0) return true;
  uint64_t end = 0;
  if (!timeline_finished(event->context->card, event->sequence, &end)) return false;
  event->done_ns = end > event->recorded_ns ? end : event->recorded_ns;
  return true;
}

/* Under driver_lock. The queue remembers its last kernels only, so this is called before it forgets any. */
void events_settle(uint32_t card) {
  CUevent *link = &watched;
  while (*link != NULL) {
    CUevent event = *link;
    if (event->context->card == card && reached(event)) {
      event->watched = false;
      *link = event->next_watched;
    } else {
      link = &event->next_watched;
    }
  }
}

static void forget(CUevent event) {
  for (CUevent *link = &watched; *link != NULL; link = &(*link)->next_watched)
    if (*link == event) {
      *link = event->next_watched;
      break;
    }
  event->watched = false;
}

CUresult cuEventCreate(CUevent *created, unsigned flags) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (created == NULL || (flags & ~7u) != 0) return CUDA_ERROR_INVALID_VALUE;
  /* Events for other processes can't be timed. */
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUevent event = object_new(&spare, sizeof *event, MAGIC_EVENT);
  if (event != NULL) {
    event->context = context;
    event->flags = flags;
    *created = event;
  }
  driver_unlock();
  return event == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  driver_lock();
  CUresult result = event_alive(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    if (event->watched) forget(event);
    capture_forget(NULL, event);
    event_share_end(event);
    object_drop(&spare, event);
  }
  driver_unlock();
  return result;
}

CUresult cuEventDestroy(CUevent event) { return cuEventDestroy_v2(event); }

/* Green contexts belong to their device's primary one. */
static bool same_family(CUcontext one, CUcontext other) {
  if (one == other) return true;
  return one->device == other->device && (one->primary || one->green != NULL) &&
         (other->primary || other->green != NULL);
}

CUresult cuEventRecord(CUevent event, CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (!event_alive(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (!same_family(event->context, context)) return CUDA_ERROR_INVALID_HANDLE;
  bool captured = false;
  result = capture_record(context, stream, event, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  driver_lock();
  event->sequence = timeline_mark(context->card, stream_newest(context, stream));
  if (event->sequence % EVENTS_SETTLE_EVERY == 0) events_settle(context->card);
  event->recorded_ns = clock_now();
  event->done_ns = 0;
  event->recorded = true;
  event_share_record(event);
  if (!reached(event) && !event->watched) {
    event->watched = true;
    event->next_watched = watched;
    watched = event;
  }
  driver_unlock();
  return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event) {
  CUresult result = driver_ready();
  if (result == CUDA_SUCCESS && event_alive(event)) result = capture_forbids(NULL, event);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  if (!event_alive(event))
    result = CUDA_ERROR_INVALID_HANDLE;
  else if ((event->recorded || event->shared != NULL) && !reached(event))
    result = CUDA_ERROR_NOT_READY;
  driver_unlock();
  return result;
}

CUresult cuEventSynchronize(CUevent event) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (!event_alive(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUresult forbidden = capture_forbids(NULL, event);
  if (forbidden != CUDA_SUCCESS) return forbidden;
  if (event->shared != NULL)
    event_share_wait(event);
  else if (event->recorded && event->done_ns == 0)
    timeline_wait(event->context->card, event->sequence);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  CUresult result = driver_ready();
  if (result != CUDA_SUCCESS) return result;
  if (milliseconds == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  if (!event_alive(start) || !event_alive(end) || !start->recorded || !end->recorded ||
      ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (!reached(start) || !reached(end))
    result = CUDA_ERROR_NOT_READY;
  else
    *milliseconds = (float)((double)(int64_t)(end->done_ns - start->done_ns) * 1e-6);
  driver_unlock();
  return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
