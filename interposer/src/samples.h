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

/* A stream capture was begun in this process: from now on own calls are made so that they don't end one. */
void samples_capture_begun(void);

/* Whether there ever was one. */
extern __attribute__((visibility("hidden"))) atomic_bool samples_captured;

/* Whether launches into the stream are recorded instead of executed. */
bool stream_captures(CUstream stream, bool per_thread);

/* The context ends, its events with it. */
void samples_context_ends(CUcontext context);

/* For a forked child: the events are the parent's. */
void samples_reset(void);

#endif
