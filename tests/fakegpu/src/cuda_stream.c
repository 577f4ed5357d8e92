/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams. The kernels of a process run on a card in launch order, whatever their streams, so a stream is no
 * more than the number of its newest kernel: all earlier work of it, and all that it was told to wait for, is
 * then done.
 */
#include "driver.h"

#define THREAD_STREAMS 8

static struct object *spare;
static uint64_t streams_made;

/* The per-thread default streams of this thread, one per context. */
static _Thread_local struct CUstream_st thread_streams[THREAD_STREAMS];
static _Thread_local unsigned thread_streams_used;
static _Thread_local bool zero_is_per_thread;

bool per_thread_enter(void) {
  bool before = zero_is_per_thread;
  zero_is_per_thread = true;
  return before;
}

void per_thread_leave(bool before) { zero_is_per_thread = before; }

static CUstream thread_stream(CUcontext context) {
  for (unsigned index = 0; index < THREAD_STREAMS; index++)
    if (thread_streams[index].context == context && thread_streams[index].context_id == context->id)
      return &thread_streams[index];
  CUstream stream = &thread_streams[thread_streams_used++ % THREAD_STREAMS];
  /* One that replaces a forgotten one may have work of its own: waiting for all of the context's is safe. */
  *stream = (struct CUstream_st){.object = {.magic = MAGIC_STREAM},
                                 .context = context,
                                 .context_id = context->id,
                                 .id = ++streams_made,
                                 .newest = thread_streams_used > THREAD_STREAMS ? context->newest : 0};
  return stream;
}

/* *stream is NULL for the legacy default stream. */
CUresult stream_resolve(CUstream handle, CUcontext *context, CUstream *stream) {
  *stream = NULL;
  bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == NULL && zero_is_per_thread);
  if (per_thread || handle == NULL || handle == CU_STREAM_LEGACY) {
    CUresult result = context_current(context);
    if (result == CUDA_SUCCESS && per_thread) *stream = thread_stream(*context);
    return result;
  }
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (handle->object.magic != MAGIC_STREAM) return CUDA_ERROR_INVALID_HANDLE;
  if (!context_alive(handle->context) || handle->context->id != handle->context_id)
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *context = handle->context;
  *stream = handle;
  return card_answers((*context)->card);
}

/* The legacy stream waits for all blocking streams of its context; they wait for it by launch order alone. */
uint64_t stream_newest(CUcontext context, CUstream stream) {
  return stream == NULL ? context->newest_blocking : stream->newest;
}

static void raise(uint64_t *newest, uint64_t sequence) {
  if (sequence > *newest) *newest = sequence;
}

void stream_append(CUcontext context, CUstream stream, uint64_t sequence) {
  driver_lock();
  raise(&context->newest, sequence);
  if (stream != NULL) raise(&stream->newest, sequence);
  if (stream == NULL || (stream->flags & CU_STREAM_NON_BLOCKING) == 0)
    raise(&context->newest_blocking, sequence);
  driver_unlock();
}

CUresult stream_wait(CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result == CUDA_SUCCESS) result = capture_forbids(stream, NULL);
  if (result == CUDA_SUCCESS) timeline_wait(context->card, stream_newest(context, stream));
  return result;
}

CUresult cuStreamCreateWithPriority(CUstream *created, unsigned flags, int priority) {
  CUcontext context = NULL;
  CUresult result = context_current(&context);
  if (result != CUDA_SUCCESS) return result;
  if (created == NULL || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  CUstream stream = object_new(&spare, sizeof *stream, MAGIC_STREAM);
  if (stream != NULL) {
    stream->context = context;
    stream->context_id = context->id;
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->id = ++streams_made;
    *created = stream;
  }
  driver_unlock();
  return stream == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

/* At once, as the manual says: its work goes on and belongs to the context. */
CUresult cuStreamDestroy_v2(CUstream stream) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  driver_lock();
  CUresult result = stream->object.magic == MAGIC_STREAM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  if (result == CUDA_SUCCESS) {
    capture_forget(stream, NULL);
    object_drop(&spare, stream);
  }
  driver_unlock();
  return result;
}

CUresult cuStreamDestroy(CUstream stream) { return cuStreamDestroy_v2(stream); }

/* Streams of a dead context are recognised by its id; they take nothing of the card. */
void streams_drop(CUcontext context) { context->newest = context->newest_blocking = 0; }

CUresult cuStreamQuery(CUstream handle) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result == CUDA_SUCCESS) result = capture_forbids(stream, NULL);
  if (result != CUDA_SUCCESS) return result;
  return timeline_finished(context->card, stream_newest(context, stream), NULL) ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream stream) { return stream_wait(stream); }

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (event == NULL || event->object.magic != MAGIC_EVENT) return CUDA_ERROR_INVALID_HANDLE;
  bool captured = false;
  result = capture_wait(context, stream, event, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  if (event->shared != NULL) { /* another process's time: the host waits in the stream's place */
    event_share_wait(event);
    return CUDA_SUCCESS;
  }
  if (!event->recorded) return CUDA_SUCCESS;
  if (event->context->card == context->card)
    stream_append(context, stream, event->sequence);
  else
    timeline_wait(event->context->card,
                  event->sequence); /* another card's time: the host waits in its place */
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (priority == NULL) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream == NULL ? 0 : stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags == NULL) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream == NULL ? 0 : stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (id == NULL) return CUDA_ERROR_INVALID_VALUE;
  *id = stream == NULL ? context->id << 32 : stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  CUcontext found = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &found, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
  *context = found;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green) {
  if (green == NULL) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = cuStreamGetCtx(stream, context);
  if (result == CUDA_SUCCESS) *green = (*context)->green;
  return result;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}
