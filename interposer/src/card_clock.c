/* SPDX-License-Identifier: Apache-2.0 */
#include "card_clock.h"

#include <stdbool.h>
#include <string.h>

#include "hooks.h"

#define ROUNDING_NS 2000u /* the driver tells times in half microseconds */
#define DRIFT 50000u      /* the two clocks part by less than one in so many; more shows, and is begun anew */

static struct {
  CUcontext context; /* NULL: nothing is known */
  CUevent event;
  uint64_t earliest, latest;
} last;

static bool hold_on_to(CUcontext context) {
  if (last.context == context) return true;
  if (last.context != NULL) DRIVER(cuEventDestroy_v2)(last.event);
  last.context = NULL;
  return false;
}

/* Narrows the bounds by what is known of the last event. */
static void narrow(CUevent event, uint64_t *earliest, uint64_t *latest) {
  float milliseconds = 0;
  if (DRIVER(cuEventElapsedTime)(&milliseconds, last.event, event) != CUDA_SUCCESS) return;
  int64_t since = (int64_t)((double)milliseconds * 1e6);
  uint64_t size = (uint64_t)(since < 0 ? -since : since), slack = ROUNDING_NS + size / DRIFT;
  uint64_t low = last.earliest + (uint64_t)since - slack, high = last.latest + (uint64_t)since + slack;
  if (low > *latest || high < *earliest) return; /* one of the clocks has jumped */
  if (low > *earliest) *earliest = low;
  if (high < *latest) *latest = high;
}

uint64_t card_clock_place(CUcontext context, CUevent *event, uint64_t earliest, uint64_t latest) {
  CUevent other = NULL;
  if (earliest > latest) earliest = latest;
  if (hold_on_to(context)) {
    narrow(*event, &earliest, &latest);
    other = last.event;
  } else if (DRIVER(cuEventCreate)(&other, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    return latest;
  }
  last.context = context;
  last.event = *event;
  last.earliest = earliest;
  last.latest = latest;
  *event = other;
  return earliest + (latest - earliest) / 2;
}

void card_clock_context_ends(CUcontext context) {
  if (last.context == context && context != NULL) hold_on_to(NULL);
}

void card_clock_reset(void) { memset(&last, 0, sizeof last); }
