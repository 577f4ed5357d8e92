/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture from outside: beginning, ending, asking, changing; and calls of host functions.
 */
#include "capture.h"

static CUresult start(CUstream stream, CUgraph graph, const struct frontier *needs,
                      CUstreamCaptureMode mode) {
  if (capture_part(stream) != NULL) return CUDA_ERROR_ILLEGAL_STATE; /* it is being captured already */
  struct capture *capture = capture_begin(graph, stream, mode);
  if (capture == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  struct taking_part *part = capture_join(capture, stream);
  if (part != NULL && frontier_add(&part->frontier, needs)) return CUDA_SUCCESS;
  if (graph == NULL) graph_free(capture->graph);
  capture_end(capture);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult begin(CUstream handle, CUgraph graph, CUgraphNode *needs, size_t need_count,
                      CUstreamCaptureMode mode) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (mode > MODE_RELAXED || (need_count != 0 && needs == NULL)) return CUDA_ERROR_INVALID_VALUE;
  if (stream == NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* the legacy stream can't be captured */
  driver_lock();
  result = start(stream, graph, &(struct frontier){needs, need_count}, mode);
  driver_unlock();
  return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, NULL, NULL, 0, mode);
}
CUresult cuStreamBeginCapture(CUstream stream) { return begin(stream, NULL, NULL, 0, MODE_GLOBAL); }

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *needs,
                                     const CUgraphEdgeData *data, size_t need_count,
                                     CUstreamCaptureMode mode) {
  (void)data;
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (!graph_alive(graph)) return CUDA_ERROR_INVALID_VALUE;
  return begin(stream, graph, (CUgraphNode *)(uintptr_t)needs, need_count, mode);
}

/* Under driver_lock. Ends the capture, well or badly, except where it is not this stream's or thread's to
 * end. */
static CUresult finish(CUstream stream, CUgraph *graph) {
  const struct taking_part *part = capture_part(stream);
  if (part == NULL) return CUDA_ERROR_ILLEGAL_STATE;
  struct capture *capture = part->capture;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != MODE_RELAXED && capture->thread != capture_thread())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  CUresult result = capture->spoilt            ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !capture_joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                               : CUDA_SUCCESS;
  *graph = result == CUDA_SUCCESS ? capture->graph : NULL;
  if (result != CUDA_SUCCESS && !capture->graph_is_theirs) graph_free(capture->graph);
  capture_end(capture);
  return result;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUgraph found = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  driver_lock();
  result = finish(stream, &found);
  driver_unlock();
  if (graph != NULL && result != CUDA_ERROR_ILLEGAL_STATE) *graph = found;
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  *status = STATUS_NONE;
  if (!capture_any()) return CUDA_SUCCESS;
  driver_lock();
  const struct taking_part *part = capture_asked(context, stream, &result);
  if (part != NULL) *status = part->capture->spoilt ? STATUS_INVALIDATED : STATUS_ACTIVE;
  driver_unlock();
  return result;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **needs, const CUgraphEdgeData **data,
                                   size_t *need_count) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  const struct taking_part *part = capture_asked(context, stream, &result);
  *status = part == NULL ? STATUS_NONE : part->capture->spoilt ? STATUS_INVALIDATED : STATUS_ACTIVE;
  if (*status == STATUS_ACTIVE) {
    if (id != NULL) *id = part->id;
    if (graph != NULL) *graph = part->capture->graph;
    if (needs != NULL) *needs = part->frontier.nodes;
    if (data != NULL) *data = NULL; /* no edge here has any */
    if (need_count != NULL) *need_count = part->frontier.count;
  }
  driver_unlock();
  return result;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **needs, size_t *need_count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, needs, NULL, need_count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode *needs,
                                              const CUgraphEdgeData *data, size_t need_count,
                                              unsigned flags) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  (void)data;
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags > 1 || (need_count != 0 && needs == NULL)) return CUDA_ERROR_INVALID_VALUE;
  driver_lock();
  struct taking_part *part = capture_active(context, stream, &result);
  if (result == CUDA_SUCCESS && part == NULL) result = CUDA_ERROR_ILLEGAL_STATE;
  for (size_t index = 0; index < need_count && result == CUDA_SUCCESS; index++)
    if (!node_alive(needs[index]) || needs[index]->graph != part->capture->graph)
      result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    if (flags == 1) part->frontier.count = 0; /* 1: instead of, 0: beside what there was */
    if (!frontier_add(&part->frontier, &(struct frontier){needs, need_count}))
      result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver_unlock();
  return result;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *needs, size_t need_count,
                                           unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(stream, needs, NULL, need_count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  if (driver_ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == NULL || *mode > MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  *mode = capture_exchange_mode(*mode);
  return CUDA_SUCCESS;
}

static CUresult host_work(CUstream handle, CUhostFn function, void *data) {
  CUcontext context = NULL;
  CUstream stream = NULL;
  bool captured = false;
  CUgraphNodeParams params = {.type = NODE_HOST};
  CUresult result = stream_resolve(handle, &context, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
  params.host = (CUDA_HOST_NODE_PARAMS_v1){function, data};
  result = capture_work(context, stream, &params, false, &captured);
  return result != CUDA_SUCCESS || captured ? result : host_call(handle, function, data);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  return host_work(stream, function, data);
}

CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned mode) {
  (void)mode;
  return host_work(stream, function, data);
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned flags) {
  if (callback == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = capture_forbids(handle, NULL);
  if (result == CUDA_SUCCESS) result = stream_wait(handle);
  if (result == CUDA_SUCCESS) callback(handle, CUDA_SUCCESS, data);
  return result;
}
