/* SPDX-License-Identifier: Apache-2.0
 *
 * When an event has come, by bounds: against a card whose clock the test knows. */
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* NOLINTNEXTLINE(bugprone-suspicious-include): the driver's functions are the test's own */
#include "../src/card_clock.c"

#define US 1000ull
#define MS (1000 * US)
#define START (1000 * MS)
#define EVENTS 64u

_Atomic(void *) real_address[ADDRESS_COUNT];
void *bind_address(int number) {
  fprintf(stderr, "function %d is not the card clock's\n", number);
  exit(1);
}

struct event {
  uint64_t came; /* on the card's clock */
  bool exists;
};

static struct event events[EVENTS];
static char contexts[CONTEXTS + 1];
#define CONTEXT(number) ((CUcontext)(void *)&contexts[number])

static unsigned int existing(void) {
  unsigned int count = 0;
  for (unsigned int i = 0; i < EVENTS; i++) count += events[i].exists;
  return count;
}

static CUresult event_create(CUevent *event, unsigned int flags) {
  (void)flags;
  for (unsigned int i = 0; i < EVENTS; i++) {
    if (events[i].exists) continue;
    events[i] = (struct event){.came = 0, .exists = true};
    *event = (CUevent)&events[i];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_destroy(CUevent event) {
  ((struct event *)event)->exists = false;
  return CUDA_SUCCESS;
}

/* In half microseconds, as the driver tells it. */
static CUresult elapsed(float *milliseconds, CUevent from, CUevent to) {
  int64_t since = (int64_t)(((struct event *)to)->came - ((struct event *)from)->came);
  *milliseconds = (float)(since / 500) / 2000.0F;
  return CUDA_SUCCESS;
}

/* The event comes at a moment of the card's clock, and is known to be between two of the host's. */
static uint64_t placed(CUcontext context, CUevent *event, uint64_t came, uint64_t earliest, uint64_t latest) {
  if (*event == NULL) CHECK_EQUAL(event_create(event, 0), CUDA_SUCCESS);
  ((struct event *)*event)->came = came;
  return card_clock_place(context, event, earliest, latest);
}

static CUevent begun(void) {
  CUevent event = NULL;
  memset(events, 0, sizeof events);
  card_clock_reset();
  real_address[CALL_cuEventCreate] = (void *)event_create;
  real_address[CALL_cuEventDestroy_v2] = (void *)event_destroy;
  real_address[CALL_cuEventElapsedTime] = (void *)elapsed;
  CHECK_EQUAL(event_create(&event, 0), CUDA_SUCCESS);
  return event;
}

static void test_the_first_one_is_in_the_middle_of_its_bounds(void) {
  CUevent event = begun();
  CHECK_EQUAL(placed(CONTEXT(0), &event, 0, START, START + 3 * MS), START + 3 * MS / 2);
  card_clock_reset();
  CHECK_EQUAL(placed(CONTEXT(0), &event, 0, START + MS, START), START); /* what can't be */
}

static void test_bounds_of_one_hold_for_the_next(void) {
  CUevent event = begun();
  uint64_t slack = ROUNDING_NS + 10 * MS / DRIFT;
  placed(CONTEXT(0), &event, 0, START, START + MS);
  /* It came 10 ms later, and was seen late. */
  uint64_t low = START + 10 * MS - slack, high = START + 11 * MS + slack;
  uint64_t found = placed(CONTEXT(0), &event, 10 * MS, START, START + 100 * MS);
  CHECK_EQUAL(found, low + (high - low) / 2);
  /* The next one was seen at once, and the one after it right after its start: both sides are close then. */
  placed(CONTEXT(0), &event, 20 * MS, START, START + 20 * MS + 200 * US);
  found = placed(CONTEXT(0), &event, 30 * MS, START + 30 * MS + 100 * US, START + 90 * MS);
  CHECK(found >= START + 30 * MS + 100 * US && found <= START + 30 * MS + 200 * US + 3 * slack);
}

static void test_a_clock_that_has_jumped_is_begun_anew(void) {
  CUevent event = begun();
  placed(CONTEXT(0), &event, 0, START, START + US);
  uint64_t found = placed(CONTEXT(0), &event, MS, START + 500 * MS, START + 502 * MS);
  CHECK_EQUAL(found, START + 501 * MS);
  found = placed(CONTEXT(0), &event, 2 * MS, START + 400 * MS, START + 600 * MS);
  CHECK_EQUAL(found, START + 502 * MS); /* by the new one's bounds */
}

/* After ten seconds the card's clock is 160 us ahead: still the same clock. */
static void test_clocks_part_slowly(void) {
  CUevent event = begun();
  uint64_t later = START + 10000 * MS;
  placed(CONTEXT(0), &event, 0, START, START + US);
  placed(CONTEXT(0), &event, 10000 * MS + 160 * US, later, later + 100 * MS);
  uint64_t found =
      placed(CONTEXT(0), &event, 10010 * MS + 160 * US, START, later + 10 * MS + US);
  CHECK(found >= later + 9 * MS && found <= later + 10 * MS + US);
}

/* Whoever looks may be in another context: an event is only given for one of the same. */
static void test_each_context_has_its_own(void) {
  CUevent event = begun(), other = NULL, kept = event;
  placed(CONTEXT(0), &event, 0, START, START + US);
  CHECK(event == NULL);
  CHECK_EQUAL(placed(CONTEXT(1), &other, 70 * MS, START, START + 2 * MS), START + MS);
  CHECK(other == NULL);
  uint64_t found = placed(CONTEXT(0), &event, 10 * MS, START, START + 100 * MS);
  CHECK(found >= START + 10 * MS - 5 * US && found <= START + 10 * MS + 5 * US);
  CHECK(event == kept);
  CHECK_EQUAL(existing(), 3);
  card_clock_context_ends(CONTEXT(2));
  CHECK_EQUAL(existing(), 3);
  card_clock_context_ends(CONTEXT(0));
  card_clock_context_ends(CONTEXT(1));
  CHECK_EQUAL(existing(), 1);
}

static void test_more_contexts_than_there_is_room_for(void) {
  CUevent event = begun();
  for (unsigned int round = 0; round < 3; round++)
    for (unsigned int i = 0; i <= CONTEXTS; i++) {
      event = NULL;
      CHECK_EQUAL(placed(CONTEXT(i), &event, 0, START, START + 2 * MS), START + MS);
    }
  CHECK_EQUAL(existing(), 1 + CONTEXTS); /* and the test's first */
}

/* Seen up to 20 ms late, recorded up to 20 ms early: what is found is never far from the truth. */
static void test_many_that_are_seen_late(void) {
  CUevent event = begun();
  uint64_t moment = START, worst = 0;
  srand(1);
  for (unsigned int i = 0; i < 2000; i++) {
    moment += (unsigned int)rand() % (50 * MS);
    uint64_t earliest = moment - (unsigned int)rand() % (20 * MS);
    uint64_t latest = moment + (unsigned int)rand() % (20 * MS);
    uint64_t found = placed(CONTEXT(0), &event, moment + 77 * MS, earliest, latest);
    uint64_t wrong = found > moment ? found - moment : moment - found;
    CHECK(found >= earliest && found <= latest);
    if (i > 100 && wrong > worst) worst = wrong;
  }
  CHECK(worst < MS && existing() == 2);
}

int main(void) {
  test_the_first_one_is_in_the_middle_of_its_bounds();
  test_bounds_of_one_hold_for_the_next();
  test_a_clock_that_has_jumped_is_begun_anew();
  test_clocks_part_slowly();
  test_each_context_has_its_own();
  test_more_contexts_than_there_is_room_for();
  test_many_that_are_seen_late();
  puts("card_clock: ok");
  return 0;
}
