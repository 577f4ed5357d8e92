/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside stream capture: what goes on, shared by cuda_capture.c (work that is captured) and
 * cuda_capture_calls.c (beginning, ending, asking). Everything under driver_lock.
 */
#ifndef FAKEGPU_CAPTURE_H
#define FAKEGPU_CAPTURE_H

#include "graph.h"

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum { STATUS_NONE, STATUS_ACTIVE, STATUS_INVALIDATED };

struct capture {
  struct capture *next; /* all that are going on */
  CUgraph graph;
  bool graph_is_theirs; /* cuStreamBeginCaptureToGraph */
  CUstream origin;
  CUstreamCaptureMode mode;
  unsigned long long id;
  bool spoilt;
  const void *thread;
};

/* What the next node of a stream, or who waits for an event, needs. */
struct frontier {
  CUgraphNode *nodes;
  size_t count;
};

/* A stream's or an event's part in a capture. */
struct taking_part {
  struct taking_part *next;
  struct capture *capture;
  unsigned long long id; /* of the capture: an event may outlive it */
  struct frontier frontier;
  CUstream stream; /* one of the two */
  CUevent event;
};

struct taking_part *capture_part(CUstream stream);                          /* NULL: it takes part in none */
struct taking_part *capture_join(struct capture *capture, CUstream stream); /* NULL: no memory */
bool capture_joined(const struct capture *capture); /* whether all streams have come back to the origin */
/* The part of a stream that is being captured; *result says what is wrong. Work on the legacy stream spoils captures
   that it would wait for, a question about it doesn't (CUDA manual, cuStreamIsCapturing). */
struct taking_part *capture_active(CUcontext context, CUstream stream, CUresult *result);
struct taking_part *capture_asked(CUcontext context, CUstream stream, CUresult *result);
struct capture *capture_begin(CUgraph graph, CUstream origin, CUstreamCaptureMode mode); /* NULL: no memory */
void capture_end(struct capture *gone);                                                  /* its graph stays */
bool frontier_add(struct frontier *frontier, const struct frontier *more);
const void *capture_thread(void); /* the same for the same thread */
CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode);

#endif
