/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "timeline.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#define SPIN_NS 80000u   /* a sleep may end that much late, so the rest is spun, as the real driver does */
#define CHANGE_NS 20000u /* from one process's work to another's: a guess, some 10 us are reported */
#define NAP_NS 5000000u  /* look again at least that often: another's death changes everything */

static void account(struct window *windows, uint64_t from, uint64_t to) {
  while (from < to) {
    uint64_t index = from / FAKEGPU_WINDOW_NS, end = (index + 1) * FAKEGPU_WINDOW_NS;
    if (end > to) end = to;
    struct window *window = &windows[index % FAKEGPU_WINDOWS];
    if (window->index != index) *window = (struct window){.index = index, .busy_ns = 0};
    window->busy_ns += end - from;
    from = end;
  }
}

uint64_t timeline_busy(const struct window *windows, uint64_t now, uint32_t back) {
  uint64_t index = now / FAKEGPU_WINDOW_NS - back;
  const struct window *window = &windows[index % FAKEGPU_WINDOWS];
  return window->index == index ? window->busy_ns : 0;
}

static void append(struct state *state, struct card_state *card, uint32_t queue) {
  state->queues[queue].next = 0;
  if (card->waiting_last != 0)
    state->queues[card->waiting_last - 1u].next = queue + 1u;
  else
    card->waiting_first = queue + 1u;
  card->waiting_last = queue + 1u;
}

/* The next queue's turn begins at the card's clock. */
static void dispatch(struct state *state, struct card_state *card) {
  card->running = card->waiting_first;
  if (card->running == 0) return;
  card->waiting_first = state->queues[card->running - 1u].next;
  if (card->waiting_first == 0) card->waiting_last = 0;
  card->slice_start_ns = card->clock_ns;
  uint64_t slice = state->driver.time_slice_ns;
  card->preempt_ns = card->waiting_first != 0 && slice != 0 ? card->clock_ns + slice : UINT64_MAX;
}

static void finish_kernel(struct queue *queue, uint64_t end) {
  queue->finished++;
  queue->ring[queue->finished % FAKEGPU_RING].end_ns = end;
  if (queue->finished < queue->launched)
    queue->remaining_ns = queue->ring[(queue->finished + 1) % FAKEGPU_RING].duration_ns;
}

/* Run the current turn until it ends or time is up; false: time is up. */
static bool run_turn(struct state *state, struct card_state *card, uint64_t now) {
  struct queue *queue = &state->queues[card->running - 1u];
  uint64_t end = card->clock_ns + queue->remaining_ns;
  uint64_t until = end < card->preempt_ns ? end : card->preempt_ns;
  if (until < card->clock_ns) until = card->clock_ns;
  if (until > now) until = now;
  uint64_t ran = until - card->clock_ns;
  account(card->windows, card->clock_ns, until);
  account(queue->windows, card->clock_ns, until);
  card->busy_ns += ran;
  queue->busy_ns += ran;
  queue->remaining_ns -= ran;
  card->clock_ns = until;
  bool finished = queue->remaining_ns == 0;
  if (!finished && until < card->preempt_ns) return false;
  if (finished) finish_kernel(queue, until);
  bool has_more = queue->launched > queue->finished;
  uint64_t slice = state->driver.time_slice_ns;
  if (has_more && slice != 0 && until < card->slice_start_ns + slice) return true; /* its turn goes on */
  if (has_more) append(state, card, card->running - 1u);
  dispatch(state, card);
  return true;
}

void timeline_advance(struct state *state, uint32_t index, uint64_t now) {
  struct card_state *card = &state->dynamic[index];
  while (card->running != 0)
    if (!run_turn(state, card, now)) return;
  if (now > card->clock_ns) card->clock_ns = now;
}

void timeline_rebuild(struct state *state, uint32_t index) {
  struct card_state *card = &state->dynamic[index];
  uint64_t now = clock_now();
  card->running = card->waiting_first = card->waiting_last = 0;
  card->clock_ns = now; /* what ran while nobody could look is lost: at most a few milliseconds */
  for (uint32_t queue = 0; queue < FAKEGPU_QUEUES; queue++) {
    struct queue *found = &state->queues[queue];
    if (found->owner == 0 || found->card != index) continue;
    if (state->slots[found->owner - 1u].queue[index] !=
        queue + 1u) { /* taken, but not yet noted by its owner */
      memset(found, 0, offsetof(struct queue, ring));
      continue;
    }
    if (found->launched <= found->finished) continue;
    if (found->remaining_ns == 0)
      found->remaining_ns = found->ring[(found->finished + 1) % FAKEGPU_RING].duration_ns;
    append(state, card, queue);
  }
  dispatch(state, card);
}

void timeline_drop(struct state *state, uint32_t index, uint32_t queue) {
  struct card_state *card = &state->dynamic[index];
  timeline_advance(state, index, clock_now());
  if (state->queues[queue].launched > state->queues[queue].finished) {
    uint32_t waiting = card->waiting_first;
    bool ran = card->running == queue + 1u;
    card->waiting_first = card->waiting_last = 0;
    while (waiting != 0) {
      uint32_t next = state->queues[waiting - 1u].next;
      if (waiting != queue + 1u) append(state, card, waiting - 1u);
      waiting = next;
    }
    if (ran) dispatch(state, card);
  }
  memset(&state->queues[queue], 0, offsetof(struct queue, ring));
}

/* This process's queue on a card, made where there is none; NULL: all are taken. Under the lock. */
static struct queue *own_queue(struct state *state, uint32_t card) {
  uint32_t known = member_slot()->queue[card];
  if (known != 0) return &state->queues[known - 1u];
  for (int attempt = 0; attempt < 2; attempt++) {
    for (uint32_t index = 0; index < FAKEGPU_QUEUES; index++) {
      struct queue *queue = &state->queues[index];
      if (queue->owner != 0) continue;
      memset(queue, 0, offsetof(struct queue, ring));
      queue->card = card;
      queue->owner = member_index() + 1u;
      member_slot()->queue[card] = index + 1u;
      return queue;
    }
    reap_dead();
  }
  return NULL;
}

static void push(struct state *state, uint32_t index, struct queue *queue, uint64_t duration, uint64_t now) {
  struct card_state *card = &state->dynamic[index];
  queue->launched++;
  queue->ring[queue->launched % FAKEGPU_RING] = (struct kernel){.duration_ns = duration, .end_ns = 0};
  if (queue->launched > queue->finished + 1) return; /* already running or waiting */
  queue->remaining_ns = duration;
  append(state, card, (uint32_t)(queue - state->queues));
  if (card->running == 0) {
    dispatch(state, card);
  } else if (card->preempt_ns == UINT64_MAX && state->driver.time_slice_ns != 0) {
    uint64_t turn = card->slice_start_ns + state->driver.time_slice_ns;
    /* It has had its turn while nobody waited. Changing over takes a moment, in which more may come behind. */
    card->preempt_ns = turn > now + CHANGE_NS ? turn : now + CHANGE_NS;
  }
}

static void pause_until(uint64_t wake) {
  uint64_t now = clock_now();
  if (wake <= now + SPIN_NS) {
    sched_yield();
    return;
  }
  uint64_t target = wake - SPIN_NS < now + NAP_NS ? wake - SPIN_NS : now + NAP_NS;
  struct timespec until = {.tv_sec = (time_t)(target / 1000000000u), .tv_nsec = (long)(target % 1000000000u)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* When it is worth looking again: the earliest moment at which the card's situation changes by itself. */
static uint64_t next_change(const struct state *state, const struct card_state *card, uint32_t own,
                            uint64_t sequence) {
  if (card->running == 0) return card->clock_ns;
  const struct queue *queue = &state->queues[card->running - 1u];
  uint64_t end = card->clock_ns + queue->remaining_ns;
  if (card->running == own && card->waiting_first == 0)
    for (uint64_t next = queue->finished + 2; next <= sequence && end < card->clock_ns + NAP_NS; next++)
      end += queue->ring[next % FAKEGPU_RING].duration_ns;
  return end < card->preempt_ns ? end : card->preempt_ns;
}

uint64_t timeline_launch(uint32_t card, uint64_t duration_ns) {
  struct state *state = member_state();
  for (;;) {
    state_lock();
    struct queue *queue = own_queue(state, card);
    if (queue == NULL) {
      state_unlock();
      return 0;
    }
    uint64_t now = clock_now();
    timeline_advance(state, card, now);
    if (queue->launched - queue->finished < FAKEGPU_PENDING) {
      push(state, card, queue, duration_ns, now);
      member_slot()->launches[card]++;
      uint64_t sequence = queue->launched;
      state_unlock();
      return sequence;
    }
    uint64_t oldest = queue->finished + 1;
    state_unlock();
    timeline_wait(card, oldest);
  }
}

uint64_t timeline_mark(uint32_t card, uint64_t after) {
  struct state *state = member_state();
  const struct card_state *there = &state->dynamic[card];
  uint32_t own = member_slot()->queue[card];
  if (there->running == 0 || (there->running == own && there->waiting_first == 0)) return after;
  state_lock();
  struct queue *queue = own_queue(state, card);
  uint64_t now = clock_now();
  timeline_advance(state, card, now);
  own = member_slot()->queue[card];
  if (queue != NULL && queue->finished >= after && there->running != 0 && there->running != own &&
      queue->launched - queue->finished < FAKEGPU_PENDING) {
    push(state, card, queue, 0, now);
    after = queue->launched;
  }
  state_unlock();
  return after;
}

bool timeline_finished(uint32_t card, uint64_t sequence, uint64_t *end_ns) {
  struct state *state = member_state();
  if (end_ns != NULL) *end_ns = 0;
  uint32_t own = member_slot()->queue[card];
  if (own == 0 || sequence == 0) return true;
  state_lock();
  struct queue *queue = &state->queues[own - 1u];
  timeline_advance(state, card, clock_now());
  bool done = queue->finished >= sequence;
  if (done && end_ns != NULL && queue->launched - sequence < FAKEGPU_RING)
    *end_ns = queue->ring[sequence % FAKEGPU_RING].end_ns;
  state_unlock();
  return done;
}

void timeline_wait(uint32_t card, uint64_t sequence) {
  struct state *state = member_state();
  uint32_t own = member_slot()->queue[card];
  if (own == 0) return;
  for (;;) {
    state_lock();
    reap_dead_sometimes();
    timeline_advance(state, card, clock_now());
    bool done = state->queues[own - 1u].finished >= sequence;
    uint64_t wake = next_change(state, &state->dynamic[card], own, sequence);
    state_unlock();
    if (done) return;
    pause_until(wake);
  }
}
