/* SPDX-License-Identifier: Apache-2.0 */
#include "card_clock.h"

#include <string.h>

#include "hooks.h"

#define CONTEXTS 16u      /* as many as a node has cards */
#define ROUNDING_NS 2000u /* the driver tells times in half microseconds */
#define DRIFT 50000u      /* the two clocks part by less than one in so many; more shows, and is begun anew */

/* The last event of a context, and its bounds. */
struct last {
  CUcontext context; /* NULL: nothing is known */
  CUevent event;
  uint64_t earliest, latest;
};

static struct last lasts[CONTEXTS];
static unsigned int given_up; /* how often another context had to go for one's sake */

static void forget(struct last *last) {
  if (last->context != NULL) DRIVER(cuEventDestroy_v2)(last->event);
  *last = (struct last){.context = NULL};
}

/* What is known of the context; NULL: nothing. */
static struct last *last_of(CUcontext context) {
  for (unsigned int i = 0; i < CONTEXTS; i++)
    if (lasts[i].context == context) return &lasts[i];
  return NULL;
}

static struct last *place_for_another(void) {
  struct last *last = last_of(NULL);
  if (last == NULL) last = &lasts[given_up++ % CONTEXTS];
  forget(last);
  return last;
}

/* Narrows the bounds by what is known of the last event. */
static void narrow(const struct last *last, CUevent event, uint64_t *earliest, uint64_t *latest) {
  float milliseconds = 0;
  if (DRIVER(cuEventElapsedTime)(&milliseconds, last->event, event) != CUDA_SUCCESS) return;
  int64_t since = (int64_t)((double)milliseconds * 1e6);
  uint64_t size = (uint64_t)(since < 0 ? -since : since), slack = ROUNDING_NS + size / DRIFT;
  uint64_t low = last->earliest + (uint64_t)since - slack, high = last->latest + (uint64_t)since + slack;
  if (low > *latest || high < *earliest) return; /* one of the clocks has jumped */
  if (low > *earliest) *earliest = low;
  if (high < *latest) *latest = high;
}

uint64_t card_clock_place(CUcontext context, CUevent *event, uint64_t earliest, uint64_t latest) {
  struct last *last = last_of(context);
  CUevent before = last != NULL ? last->event : NULL;
  if (earliest > latest) earliest = latest;
  if (last != NULL)
    narrow(last, *event, &earliest, &latest);
  else
    last = place_for_another();
  *last = (struct last){.context = context, .event = *event, .earliest = earliest, .latest = latest};
  *event = before;
  return earliest + (latest - earliest) / 2;
}

void card_clock_context_ends(CUcontext context) {
  struct last *last = context != NULL ? last_of(context) : NULL;
  if (last != NULL) forget(last);
}

void card_clock_reset(void) { memset(lasts, 0, sizeof lasts); }
