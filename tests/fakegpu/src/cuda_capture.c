/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream capture: between begin and end, work on a stream becomes nodes of a graph instead. Other streams
 * come in by waiting for an event that was recorded in the capture, and must have come back at its end (CUDA
 * programming guide, "Creating a graph using stream capture"). Of the calls that a capture forbids, those
 * that wait for the stream, its events or the context are refused, and allocations where the mode says so;
 * each spoils the capture.
 */
#include "capture.h"

#include <stdlib.h>

static struct capture *captures;
static struct taking_part *parts;
static unsigned long long captures_made;
static _Thread_local CUstreamCaptureMode thread_mode;
static _Thread_local char thread_mark;

struct taking_part *capture_part(CUstream stream) {
  struct taking_part *part = stream == NULL ? NULL : parts;
  while (part != NULL && part->stream != stream) part = part->next;
  return part;
}

static struct taking_part *part_of_event(CUevent event) {
  struct taking_part *part = parts;
  while (part != NULL && part->event != event) part = part->next;
  return part;
}

static struct taking_part *take_part(struct capture *capture, CUstream stream, CUevent event) {
  struct taking_part *part = calloc(1, sizeof *part);
  if (part == NULL) return NULL;
  part->capture = capture;
  part->id = capture->id;
  part->stream = stream;
  part->event = event;
  part->next = parts;
  parts = part;
  return part;
}

static void leave(struct taking_part *gone) {
  struct taking_part **link = &parts;
  while (*link != gone) link = &(*link)->next;
  *link = gone->next;
  free(gone->frontier.nodes);
  free(gone);
}

bool frontier_add(struct frontier *frontier, const struct frontier *more) {
  CUgraphNode *grown = realloc(frontier->nodes, (frontier->count + more->count + 1) * sizeof(CUgraphNode));
  if (grown == NULL) return false;
  frontier->nodes = grown;
  for (size_t index = 0; index < more->count; index++) {
    size_t known = 0;
    while (known < frontier->count && grown[known] != more->nodes[index]) known++;
    if (known == frontier->count) grown[frontier->count++] = more->nodes[index];
  }
  return true;
}

static bool frontier_set(struct frontier *frontier, CUgraphNode *nodes, size_t count) {
  frontier->count = 0;
  return frontier_add(frontier, &(struct frontier){nodes, count});
}

/* The legacy stream would wait for a blocking one. */
static bool in_the_way(const struct capture *capture, CUcontext context) {
  return capture->origin->context == context && (capture->origin->flags & CU_STREAM_NON_BLOCKING) == 0;
}

struct taking_part *capture_asked(CUcontext context, CUstream stream, CUresult *result) {
  *result = CUDA_SUCCESS;
  for (struct capture *capture = captures; stream == NULL && capture != NULL; capture = capture->next)
    if (in_the_way(capture, context)) *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return capture_part(stream);
}

struct taking_part *capture_active(CUcontext context, CUstream stream, CUresult *result) {
  *result = CUDA_SUCCESS;
  if (parts == NULL) return NULL;
  if (stream == NULL) {
    for (struct capture *capture = captures; capture != NULL; capture = capture->next)
      if (in_the_way(capture, context)) {
        capture->spoilt = true;
        *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    return NULL;
  }
  struct taking_part *part = capture_part(stream);
  if (part != NULL && part->capture->spoilt) *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return part;
}

static CUresult add_node(struct taking_part *part, const struct work *work) {
  CUgraphNode node = node_add(part->capture->graph, part->frontier.nodes, part->frontier.count, work);
  if (node == NULL || !frontier_set(&part->frontier, &node, 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  return CUDA_SUCCESS;
}

bool capture_any(void) { return __atomic_load_n(&parts, __ATOMIC_RELAXED) != NULL; }

CUresult capture_work(CUcontext context, CUstream stream, CUgraphNodeParams *params, bool cooperative,
                      bool *captured) {
  *captured = false;
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  struct work work = {.cooperative = cooperative};
  driver_lock();
  struct taking_part *part = capture_active(context, stream, &result);
  if (result == CUDA_SUCCESS && part != NULL) {
    *captured = true;
    result = work_from(params, context, &work);
    if (result == CUDA_SUCCESS) graph_memory_reuse(&work, part->frontier.nodes, part->frontier.count);
    if (result == CUDA_SUCCESS) result = add_node(part, &work);
    if (result == CUDA_SUCCESS && params->type == NODE_MEM_ALLOC)
      params->alloc.address = work.params.alloc.address;
  }
  driver_unlock();
  return result;
}

/* A launch of an instantiated graph becomes a child graph: its steps, one after another. */
CUresult capture_exec(CUcontext context, CUstream stream, CUgraphExec exec, bool *captured) {
  *captured = false;
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  driver_lock();
  struct taking_part *part = capture_active(context, stream, &result);
  if (result == CUDA_SUCCESS && part != NULL) {
    *captured = true;
    CUgraph child = graph_new();
    CUgraphNode before = NULL;
    for (size_t index = 0; child != NULL && index < exec->count && result == CUDA_SUCCESS; index++) {
      const struct work *work = &exec->steps[index].work;
      if (work->memory != NULL || work->type == NODE_MEM_FREE) result = CUDA_ERROR_NOT_SUPPORTED;
      if (result == CUDA_SUCCESS) before = node_add(child, &before, before != NULL, work);
    }
    struct work work = {.type = NODE_GRAPH};
    work.params.graph = child;
    if (child == NULL) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) result = add_node(part, &work);
    if (result == CUDA_SUCCESS)
      child->owned = true;
    else if (child != NULL)
      graph_free(child);
  }
  driver_unlock();
  return result;
}

/* An event recorded in a capture marks a place in it; recorded outside, it is an ordinary one again. */
CUresult capture_record(CUcontext context, CUstream stream, CUevent event, bool *captured) {
  *captured = false;
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  driver_lock();
  struct taking_part *part = capture_active(context, stream, &result), *before = part_of_event(event);
  if (before != NULL && result == CUDA_SUCCESS) leave(before);
  if (result == CUDA_SUCCESS && part != NULL) {
    *captured = true;
    struct taking_part *mark = take_part(part->capture, NULL, event);
    if (mark == NULL || !frontier_add(&mark->frontier, &part->frontier)) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver_unlock();
  return result;
}

/* Waiting for such an event brings the stream into the capture. */
CUresult capture_wait(CUcontext context, CUstream stream, CUevent event, bool *captured) {
  *captured = false;
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  driver_lock();
  struct taking_part *part = capture_active(context, stream, &result), *mark = part_of_event(event);
  if (result != CUDA_SUCCESS) {
  } else if (mark == NULL) {
    if (part != NULL) result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* an event from outside */
  } else if (stream == NULL) {
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  } else if (part != NULL && part->capture != mark->capture) {
    part->capture->spoilt = mark->capture->spoilt = true;
    result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
  } else {
    *captured = true;
    if (part == NULL) part = take_part(mark->capture, stream, NULL);
    if (part == NULL || !frontier_add(&part->frontier, &mark->frontier)) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  driver_unlock();
  return result;
}

CUresult capture_forbids(CUstream stream, CUevent event) {
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  driver_lock();
  struct taking_part *part = event != NULL ? part_of_event(event) : capture_part(stream);
  if (part != NULL) {
    part->capture->spoilt = true;
    result = event != NULL ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  driver_unlock();
  return result;
}

static bool forbids_here(const struct capture *capture) {
  if (capture->mode == MODE_RELAXED || thread_mode == MODE_RELAXED) return false;
  if (capture->thread == &thread_mark) return true;
  return capture->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL;
}

CUresult capture_forbids_unsafe(CUcontext context) {
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  driver_lock();
  for (struct capture *capture = captures; capture != NULL; capture = capture->next)
    if (capture->origin->context == context && forbids_here(capture)) {
      capture->spoilt = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  driver_unlock();
  return result;
}

CUresult capture_forbids_context(CUcontext context) {
  if (!capture_any()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  driver_lock();
  for (struct capture *capture = captures; capture != NULL; capture = capture->next)
    if (capture->origin->context == context) {
      capture->spoilt = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  driver_unlock();
  return result;
}

void capture_end(struct capture *gone) {
  for (struct taking_part *part = parts; part != NULL;) {
    struct taking_part *next = part->next;
    if (part->capture == gone) leave(part);
    part = next;
  }
  struct capture **link = &captures;
  while (*link != gone) link = &(*link)->next;
  *link = gone->next;
  free(gone);
}

struct capture *capture_begin(CUgraph graph, CUstream origin, CUstreamCaptureMode mode) {
  struct capture *capture = calloc(1, sizeof *capture);
  if (capture == NULL) return NULL;
  *capture = (struct capture){.graph = graph == NULL ? graph_new() : graph,
                              .graph_is_theirs = graph != NULL,
                              .origin = origin,
                              .mode = mode,
                              .id = ++captures_made,
                              .thread = &thread_mark};
  if (capture->graph == NULL) {
    free(capture);
    return NULL;
  }
  capture->next = captures;
  captures = capture;
  return capture;
}

struct taking_part *capture_join(struct capture *capture, CUstream stream) {
  return take_part(capture, stream, NULL);
}

const void *capture_thread(void) { return &thread_mark; }

CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode) {
  CUstreamCaptureMode before = thread_mode;
  thread_mode = mode;
  return before;
}

static void mark(CUgraphNode node) {
  if (node->visit != 0) return;
  node->visit = 1;
  for (size_t index = 0; index < node->need_count; index++) mark(node->needs[index]);
}

/* Whether all that other streams did is something that the origin has waited for. */
bool capture_joined(const struct capture *capture) {
  for (CUgraphNode node = capture->graph->first; node != NULL; node = node->next) node->visit = 0;
  const struct taking_part *origin = capture_part(capture->origin);
  for (size_t index = 0; index < origin->frontier.count; index++) mark(origin->frontier.nodes[index]);
  for (const struct taking_part *part = parts; part != NULL; part = part->next)
    for (size_t index = 0; part->capture == capture && part->stream != NULL && index < part->frontier.count;
         index++)
      if (part->frontier.nodes[index]->visit == 0) return false;
  return true;
}

/* A stream that began a capture takes it along. */
void capture_forget(CUstream stream, CUevent event) {
  struct taking_part *part = event != NULL ? part_of_event(event) : capture_part(stream);
  if (part == NULL) return;
  struct capture *capture = part->capture;
  if (event == NULL && capture->origin == stream) {
    if (!capture->graph_is_theirs) graph_free(capture->graph);
    capture_end(capture);
    return;
  }
  if (event == NULL) capture->spoilt = true;
  leave(part);
}
