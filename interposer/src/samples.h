/* SPDX-License-Identifier: Apache-2.0
 *
 * Timed launches: a pair of CUDA events around a launch, looked at later, settled when the kernel has ended.
 * Nobody waits for one; a launch goes untimed where none is to be had. */
#ifndef TESSERA_SAMPLES_H
#define TESSERA_SAMPLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_types.h"
#include "estimates.h"
#include "grants.h"

struct sample_of {
  struct grant *grant;
  struct estimate *estimate;
  uint64_t debited; /* ns of device time taken for each launch that it stands for */
  uint32_t launches;
  CUstream stream;
  bool per_thread; /* NULL is the per-thread default stream */
};

/* Records the start; the sample's number. -1: not timed. */
int sample_begin(const struct sample_of *of);

/* Behind the launch, with what the driver said: records the end, or drops the sample. */
void sample_end(int number, CUresult launched);

/* Settles what has ended. Returns when it is worth looking again; UINT64_MAX: nothing is pending, or another
   thread is at it. */
uint64_t samples_settle(void);

/* Stream captures that go on in this process: while there are any, no launch is taken to be executed without
   asking. One whose stream or context was destroyed counts for ever. */
extern __attribute__((visibility("hidden"))) _Atomic int samples_captures;
static inline bool samples_captures_go_on(void) {
  return atomic_load_explicit(&samples_captures, memory_order_relaxed) > 0;
}

/* The driver is about to be asked for one; it has refused it, or one has ended. */
void samples_capture_begins(void);
void samples_capture_ended(void);

/* Whether launches into the stream are recorded instead of executed. */
bool stream_captures(CUstream stream, bool per_thread);

/* The driver is about to be asked for what may end the context, or NULL: its events are left alone until it is
   known whether they have ended with it. */
void samples_context_may_end(CUcontext context);
void samples_context_looked(CUcontext context, bool has_ended);

/* For a forked child: the events are the parent's. */
void samples_reset(void);

#endif
