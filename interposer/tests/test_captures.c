/* SPDX-License-Identifier: Apache-2.0
 *
 * What a launch asks the driver while streams are captured, and no longer: the hooks of launches and captures
 * against a driver that counts. */
#include <string.h>

#include "check.h"

/* NOLINTBEGIN(bugprone-suspicious-include): the driver and the grants are the test's own */
#include "../src/card_clock.c"
#include "../src/hooks_launch.c"
#include "../src/samples.c"
#include "../src/throttle.c"
/* NOLINTEND(bugprone-suspicious-include) */

#define STREAM(number) ((CUstream)(uintptr_t)(100 + (number)))
#define STREAMS 4

_Atomic(void *) real_address[ADDRESS_COUNT];
__thread bool inside_driver;
_Atomic int grants_found = GRANTS_READY;
atomic_bool grants_mapped = true;

static struct tessera_limits limits = {.guaranteed_cores = 50};
static struct tessera_usage usage = {.slots_high = 1, .process[0].start_ns = 1};
static struct grant grant = {.limits = &limits, .region = {.usage = &usage, .owner = 1, .start_ns = 1}};
static struct card card = {.count = 1, .grants = {&grant}};

struct card *card_of_stream(CUstream stream) { return stream != NULL ? &card : NULL; }
uint32_t grant_number(const struct grant *asked) { return asked == &grant ? 0 : GRANTS; }
bool grants_are_one(void) { return true; }
bool graph_memory_begin(struct graph_charge *charge, CUgraphExec exec) {
  return charge != NULL && exec != NULL;
}
void graph_memory_end(struct graph_charge *charge, CUgraphExec exec, CUresult result) {
  (void)charge, (void)exec, (void)result;
}

static int launched, asked;
static bool captured[STREAMS];
static CUresult begins_with, ends_with;

static int number_of(CUstream stream) { return (int)((uintptr_t)stream - 100); }

static CUresult absent(void) { return CUDA_ERROR_NOT_FOUND; }
static CUresult launch_kernel(void) {
  launched++;
  return CUDA_SUCCESS;
}
static CUresult is_capturing(CUstream stream, int *status) {
  asked++;
  *status = captured[number_of(stream)];
  return CUDA_SUCCESS;
}
static CUresult begin_capture(CUstream stream) {
  captured[number_of(stream)] = begins_with == CUDA_SUCCESS;
  return begins_with;
}
static CUresult end_capture(CUstream stream) {
  bool ends = ends_with != CUDA_ERROR_INVALID_VALUE; /* which stands for what ends none */
  if (ends) captured[number_of(stream)] = false;
  return ends_with;
}
/* A driver that calls one of its own functions by its exported name. */
static CUresult begin_capture_by_name(CUstream stream) { return cuStreamBeginCapture_v2(stream, 0); }

/* What another thread's capture would end by, were it not in relaxed mode. */
static int mode, unsafe_calls, strict_calls;

static CUresult exchange_mode(int *with) {
  int before = mode;
  mode = *with;
  *with = before;
  return CUDA_SUCCESS;
}
static CUresult unsafe(void) {
  unsafe_calls++;
  if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) strict_calls++;
  return CUDA_SUCCESS;
}
static CUresult create_event(CUevent *event, unsigned int flags) {
  *event = (CUevent)(void *)&card;
  return flags == CU_EVENT_DEFAULT ? unsafe() : CUDA_ERROR_INVALID_VALUE;
}
static CUresult current(CUcontext *context) {
  *context = (CUcontext)(void *)&card;
  return CUDA_SUCCESS;
}
static CUresult done(void) { return CUDA_SUCCESS; }
static CUresult elapsed(float *milliseconds) {
  *milliseconds = 1;
  return CUDA_SUCCESS;
}

void *bind_address(int number) {
  (void)number;
  return (void *)absent;
}
bool driver_has(int number) { return bound_address(number) != (void *)absent; }

static void begin(void) {
  static const int begins[] = {HOOK_cuStreamBeginCapture_v2,   HOOK_cuStreamBeginCapture_v2_ptsz,
                               HOOK_cuStreamBeginCapture_ptsz, HOOK_cuStreamBeginCaptureToGraph,
                               HOOK_cuStreamBeginCaptureToCig, HOOK_cuStreamBeginRecaptureToGraph};
  static const int ends[] = {HOOK_cuStreamEndCapture, HOOK_cuStreamEndCapture_ptsz,
                             HOOK_cuStreamEndCaptureToCig};
  memset(real_address, 0, sizeof real_address);
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) real_address[begins[i]] = (void *)begin_capture;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) real_address[ends[i]] = (void *)end_capture;
  real_address[HOOK_cuStreamBeginCapture] = (void *)begin_capture_by_name;
  real_address[HOOK_cuLaunchKernel] = (void *)launch_kernel;
  real_address[CALL_cuStreamIsCapturing] = (void *)is_capturing;
  samples_reset();
  estimate_of(&card, 1)->ns = ESTIMATE_LONG_NS; /* each launch is timed, and none waits long */
  memset(captured, 0, sizeof captured);
  begins_with = ends_with = CUDA_SUCCESS;
}

/* How often the driver is asked about a stream for ten launches into it; each comes to the driver, once. */
static int asked_for(int stream) {
  asked = launched = 0;
  for (int i = 0; i < 10; i++)
    cuLaunchKernel((CUfunction)(void *)&card, 1, 1, 1, 1, 1, 1, 0, STREAM(stream), NULL, NULL);
  CHECK_EQUAL(launched, 10);
  return asked;
}

static void test_asks_while_a_capture_goes_on_alone(void) {
  begin();
  CHECK_EQUAL(asked_for(0), 0);
  CHECK_EQUAL(cuStreamBeginCapture_v2(STREAM(1), 0), CUDA_SUCCESS);
  CHECK(asked_for(0) >= 10 && asked_for(1) >= 10);
  CHECK_EQUAL(cuStreamBeginCaptureToGraph(STREAM(2), NULL, NULL, NULL, 0, 0), CUDA_SUCCESS);
  CHECK_EQUAL(cuStreamEndCapture(STREAM(1), NULL), CUDA_SUCCESS);
  CHECK(asked_for(0) >= 10);
  CHECK_EQUAL(cuStreamEndCapture_ptsz(STREAM(2), NULL), CUDA_SUCCESS);
  CHECK_EQUAL(asked_for(0), 0);
}

static void test_every_way_to_begin_is_noticed(void) {
  begin();
  cuStreamBeginCapture(STREAM(0)); /* comes to two hooks, and is one capture */
  CHECK(asked_for(1) >= 10);
  cuStreamEndCapture(STREAM(0), NULL);
  CHECK_EQUAL(asked_for(1), 0);
  cuStreamBeginCapture_ptsz(STREAM(0));
  cuStreamBeginCapture_v2_ptsz(STREAM(1), 0);
  cuStreamBeginRecaptureToGraph(STREAM(2), 0, NULL, NULL, NULL);
  cuStreamBeginCaptureToCig(STREAM(3), NULL);
  for (int i = 0; i < 3; i++) cuStreamEndCapture(STREAM(i), NULL);
  CHECK(asked_for(1) >= 10);
  cuStreamEndCaptureToCig(STREAM(3));
  CHECK_EQUAL(asked_for(1), 0);
}

static void test_one_that_is_refused_does_not_go_on(void) {
  begin();
  begins_with = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK_EQUAL(cuStreamBeginCapture_v2(STREAM(1), 0), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQUAL(asked_for(0), 0);
}

static void test_one_that_was_spoilt_has_ended_too(void) {
  static const CUresult results[] = {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                                     CUDA_ERROR_STREAM_CAPTURE_UNJOINED};
  for (size_t i = 0; i < 2; i++) {
    begin();
    cuStreamBeginCapture_v2(STREAM(1), 0);
    ends_with = results[i];
    CHECK_EQUAL(cuStreamEndCapture(STREAM(1), NULL), results[i]);
    CHECK_EQUAL(asked_for(0), 0);
  }
}

static void test_one_of_another_stream_or_thread_goes_on(void) {
  begin();
  cuStreamBeginCapture_v2(STREAM(1), 0);
  ends_with = CUDA_ERROR_INVALID_VALUE;
  CHECK_EQUAL(cuStreamEndCapture(STREAM(1), NULL), CUDA_ERROR_INVALID_VALUE);
  CHECK(asked_for(0) >= 10);
  ends_with = CUDA_SUCCESS;
  cuStreamEndCapture(STREAM(1), NULL);
  CHECK_EQUAL(asked_for(0), 0);
}

/* A capture may begin in another thread between a look and the call. */
static void test_own_calls_never_end_a_capture(void) {
  begin();
  real_address[CALL_cuThreadExchangeStreamCaptureMode] = (void *)exchange_mode;
  real_address[CALL_cuCtxGetCurrent] = (void *)current;
  real_address[CALL_cuEventCreate] = (void *)create_event;
  real_address[CALL_cuEventRecord] = (void *)done;
  real_address[CALL_cuEventQuery] = (void *)unsafe;
  real_address[CALL_cuEventElapsedTime] = (void *)elapsed;
  asked_for(0);
  CHECK(unsafe_calls > 2); /* two events, and a question at least */
  CHECK_EQUAL(strict_calls, 0);
  CHECK_EQUAL(mode, 0);
}

int main(void) {
  test_asks_while_a_capture_goes_on_alone();
  test_every_way_to_begin_is_noticed();
  test_one_that_is_refused_does_not_go_on();
  test_one_that_was_spoilt_has_ended_too();
  test_one_of_another_stream_or_thread_goes_on();
  test_own_calls_never_end_a_capture();
  puts("captures: ok");
  return 0;
}
