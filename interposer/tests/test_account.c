/* SPDX-License-Identifier: Apache-2.0
 *
 * Accounting without a lock, in every order in which a few processes can come: each look at what is shared is
 * a place where another may go on, as often as the scenario says, and the sums are looked at there each time.
 * So who stops or dies at any such place is among them. The processes are coroutines of this one. */
#include "account.h"

#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "atomics.h"
#include "check.h"
#include "usage.h"

#define LIMIT 10u /* granules */
#define ACTORS 3
#define STACK (64u << 10)
#define DEEPEST 512
#define FEW 8u /* slots that are used here */

static struct {
  _Alignas(64) struct tessera_usage usage;
} shared;
static struct tessera_usage *const usage = &shared.usage;

struct scenario {
  const char *name;
  void (*prepare)(void);
  void (*bodies[ACTORS])(void);
  void (*finish)(void);
  int switches; /* how often another goes on where one needn't wait */
  bool rubbish; /* the sums are wrong at first */
};

/* --- in every order ----------------------------------------------------------------------------------- */

static struct actor {
  ucontext_t context;
  bool done;
  char stack[STACK];
} actors[ACTORS];

static struct choice {
  int options, taken;
} choices[DEEPEST];

static const struct scenario *playing;
static ucontext_t outside;
static int running, left, depth, known, switches;

static uint64_t truth;   /* granules that "the driver" has given out */
static uint64_t highest; /* that the total has been */

static void check_sums(void) {
  uint64_t sum = 0, total = usage_total(usage) / TESSERA_GRANULE;
  if (playing->rubbish) return;
  for (uint32_t i = 0; i < FEW; i++) sum += usage_held(usage, i) / TESSERA_GRANULE;
  CHECK_EQUAL(sum, total);
  CHECK(total <= LIMIT);
  CHECK(truth <= total);
  if (total > highest) highest = total;
  CHECK_EQUAL(usage_peak(usage) / TESSERA_GRANULE, highest);
}

/* Which actor goes on: the first time the one that runs, and in later runs each of the others. */
static int choose(void) {
  bool may_go_on = !actors[running].done;
  int options = may_go_on && switches == playing->switches ? 1 : left;
  CHECK(depth < DEEPEST);
  if (depth == known) choices[known++] = (struct choice){.options = options, .taken = 0};
  CHECK_EQUAL(choices[depth].options, options); /* the same prefix leads to the same place */
  int taken = choices[depth++].taken;
  if (may_go_on && taken-- == 0) return running;
  if (may_go_on) switches++;
  for (int i = 0; i < ACTORS; i++)
    if (i != running && !actors[i].done && taken-- == 0) return i;
  return -1;
}

static void step(void) {
  check_sums();
  int before = running, next = choose();
  if (next == before) return;
  running = next;
  CHECK_EQUAL(swapcontext(&actors[before].context, &actors[next].context), 0);
}

static void play(void) {
  playing->bodies[running]();
  check_sums();
  actors[running].done = true;
  if (--left == 0) setcontext(&outside);
  running = choose();
  setcontext(&actors[running].context);
}

static void run_once(void) {
  volatile bool begun = false; /* the context comes here twice */
  memset(usage, 0, offsetof(struct tessera_usage, process) + FEW * sizeof(struct tessera_process));
  truth = highest = 0;
  left = depth = running = switches = 0;
  playing->prepare();
  for (int i = ACTORS; i-- > 0;) {
    actors[i].done = playing->bodies[i] == NULL;
    if (actors[i].done) continue;
    getcontext(&actors[i].context);
    actors[i].context.uc_stack.ss_sp = actors[i].stack;
    actors[i].context.uc_stack.ss_size = STACK;
    makecontext(&actors[i].context, play, 0);
    left++;
  }
  account_step = step;
  getcontext(&outside);
  if (!begun) {
    begun = true;
    setcontext(&actors[0].context);
  }
  account_step = NULL;
  check_sums();
  playing->finish();
}

static void play_in_every_order(const struct scenario *scenario) {
  long runs = 0;
  playing = scenario;
  known = 0;
  do {
    run_once();
    runs++;
    while (known > 0 && choices[known - 1].taken + 1 == choices[known - 1].options) known--;
    if (known > 0) choices[known - 1].taken++;
  } while (known > 0);
  printf("account: %s: %ld orders\n", scenario->name, runs);
  CHECK(runs > 100);
}

/* --- what they do ------------------------------------------------------------------------------------- */

static const struct account_room room = {.limit = LIMIT, .cap = ACCOUNT_NO_CAP};

static uint64_t start_of(uint32_t slot) { return 1000 + slot; }

/* A slot with its owner in it, who holds so much. */
static void settled(uint32_t slot, uint64_t held) {
  usage->process[slot].start_ns = start_of(slot);
  account_enter_slot(usage, slot);
  CHECK(account_set(usage, slot, start_of(slot), held));
}

static enum account_answer change(uint32_t slot, uint64_t before, uint64_t after) {
  enum account_answer answer = account_change(usage, slot, start_of(slot), before, after, &room);
  if (answer == ACCOUNT_DONE) CHECK_EQUAL(usage_held(usage, slot), after * TESSERA_GRANULE);
  return answer;
}

static void take_and_give(uint32_t slot, uint64_t granules) {
  enum account_answer answer = change(slot, 0, granules);
  if (answer == ACCOUNT_REFUSED) return;
  CHECK_EQUAL(answer, ACCOUNT_DONE);
  truth += granules;
  check_sums();
  truth -= granules;
  CHECK_EQUAL(change(slot, granules, 0), ACCOUNT_DONE);
}

/* As a sweep does with one that it has seen dead. */
static void clear(uint32_t slot, uint64_t start) {
  step();
  if (start == 0 || swap_if(&usage->process[slot].start_ns, &start, 0u)) account_set(usage, slot, 0, 0);
}

/* As a newcomer does with a slot whose record lock it has. */
static void claim(uint32_t slot, uint64_t start, uint64_t held) {
  step();
  uint64_t former = load_acquire(&usage->process[slot].start_ns);
  step();
  if (!swap_if(&usage->process[slot].start_ns, &former, start)) return;
  step();
  account_enter_slot(usage, slot);
  if (!account_set(usage, slot, start, 0)) return;
  CHECK_EQUAL(usage_held(usage, slot), 0);
  account_set(usage, slot, start, held);
}

/* --- scenarios ---------------------------------------------------------------------------------------- */

static void three_processes(void) {
  for (uint32_t slot = 1; slot < 4; slot++) settled(slot, 0);
}

static void first_takes_six(void) { take_and_give(1, 6); }
static void second_takes_five(void) { take_and_give(2, 5); }
static void third_takes_four(void) { take_and_give(3, 4); }

static void nothing_is_held(void) { CHECK_EQUAL(usage_total(usage), 0); }

/* Slot 1 is a dead one's, who holds 6; slot 2 a living one's. */
static void one_is_dead(void) {
  settled(1, 6);
  settled(2, 1);
}

static void second_gives_and_takes(void) {
  CHECK_EQUAL(change(2, 1, 0), ACCOUNT_DONE);
  CHECK_EQUAL(change(2, 0, 3), ACCOUNT_DONE);
}

static void clears_the_first(void) { clear(1, start_of(1)); }
static void clears_what_is_left_over(void) { clear(1, load_acquire(&usage->process[1].start_ns)); }
static void claims_the_first(void) { claim(1, 7, 2); }

static void only_the_second_holds(void) {
  CHECK_EQUAL(usage_total(usage), 3 * TESSERA_GRANULE);
  CHECK_EQUAL(usage_held(usage, 1), 0);
}

/* Whoever was swept while he claimed finds his slot gone; else he holds what he came with. */
static void the_newcomer_holds_his_own(void) {
  uint64_t held = usage_held(usage, 1) / TESSERA_GRANULE;
  CHECK_EQUAL(held, usage->process[1].start_ns == 7 ? 2 : 0);
  CHECK_EQUAL(usage_held(usage, 2), 3 * TESSERA_GRANULE);
}

/* Slot 1's owner lives, but looks dead: his operation comes before that, or finds his slot lost. */
static void first_changes_while_swept(void) {
  enum account_answer answer = account_change(usage, 1, start_of(1), 6, 4, &room);
  CHECK(answer != ACCOUNT_REFUSED);
  if (answer == ACCOUNT_LOST) CHECK(usage->process[1].start_ns != start_of(1));
}

static void first_is_empty(void) {
  CHECK_EQUAL(usage_held(usage, 1), 0);
  CHECK_EQUAL(usage_total(usage), usage_held(usage, 2));
}

/* Of the container 7 are slots 1 and 2, with a cap of 5; slot 3 is of another. */
static void a_container_of_two(void) {
  three_processes();
  usage->process[1].container = usage->process[2].container = 7;
}

static uint64_t in_container;

static void take_within_cap(uint32_t slot, uint64_t granules) {
  const struct account_room capped = {.limit = LIMIT, .cap = 5, .container = 7};
  enum account_answer answer = account_change(usage, slot, start_of(slot), 0, granules, &capped);
  if (answer == ACCOUNT_REFUSED) return;
  in_container += granules;
  CHECK(in_container <= 5);
  in_container -= granules;
  CHECK_EQUAL(change(slot, granules, 0), ACCOUNT_DONE);
}

static void first_within_cap(void) { take_within_cap(1, 3); }
static void second_within_cap(void) { take_within_cap(2, 3); }
static void third_beside_it(void) { CHECK_EQUAL(change(3, 0, 6), ACCOUNT_DONE); }
static void the_third_holds(void) { CHECK_EQUAL(usage_total(usage), 6 * TESSERA_GRANULE); }

/* Of the container are 1, 2 and 3, who together hold 3 at the most; 4 is of another. */
static void a_container_that_has_room(void) {
  for (uint32_t slot = 1; slot < 4; slot++) usage->process[slot].container = 7;
  settled(1, 3);
  settled(2, 0);
  settled(3, 0);
  settled(4, 5);
}

static void three_pass_from_first_to_second(void) {
  CHECK_EQUAL(change(1, 3, 0), ACCOUNT_DONE);
  CHECK_EQUAL(change(2, 0, 3), ACCOUNT_DONE);
  CHECK_EQUAL(change(4, 5, 4), ACCOUNT_DONE); /* enters the second's */
}

static void the_third_is_not_refused(void) {
  const struct account_room capped = {.limit = LIMIT, .cap = 5, .container = 7};
  CHECK_EQUAL(account_change(usage, 3, start_of(3), 0, 2, &capped), ACCOUNT_DONE);
}

static void what_they_hold_is_of_one_moment(void) {
  uint64_t sum = account_sum(usage, 7);
  CHECK(sum == 3 || sum == 0);
  CHECK_EQUAL(account_sum(usage, 8), 0);
}

static void seven_are_held(void) { CHECK_EQUAL(usage_total(usage), 7 * TESSERA_GRANULE); }
static void all_hold(void) { CHECK_EQUAL(usage_total(usage), 9 * TESSERA_GRANULE); }

/* Slots 1 and 3 were used; now a look at all finds that only slot 1 is, while slot 3 is taken again. */
static void two_of_four_are_free(void) {
  settled(1, 1);
  settled(3, 0);
  usage->process[3].start_ns = 0;
}

static void lowers(void) {
  uint64_t seen = account_slots_seen(usage);
  uint32_t top = 0;
  for (uint32_t i = 0; i < (uint32_t)seen; i++) {
    step();
    if (slot_taken(&usage->process[i])) top = i + 1;
  }
  account_lower_slots(usage, seen, top);
}

static void claims_the_third(void) { claim(3, 7, 2); }
static void the_third_is_seen(void) {
  CHECK_EQUAL(usage_slots_high(usage), 4);
  CHECK_EQUAL(usage_held(usage, 3), 2 * TESSERA_GRANULE);
}

static void total_is_rubbish(void) {
  settled(1, 2);
  settled(2, 2);
  settled(3, 0);
  usage->sums += (uint64_t)3 << TESSERA_TOTAL_SHIFT;
}

static void mends(void) { account_mend_total(usage); }
static void first_gives_two(void) { CHECK_EQUAL(change(1, 2, 0), ACCOUNT_DONE); }

static void it_can_be_mended(void) {
  account_mend_total(usage);
  CHECK_EQUAL(usage_total(usage), 2 * TESSERA_GRANULE);
  CHECK_EQUAL(usage_held(usage, 2), 2 * TESSERA_GRANULE);
}

static const struct scenario scenarios[] = {
    {"two within a limit", three_processes, {first_takes_six, second_takes_five}, nothing_is_held, 5, false},
    {"three within a limit",
     three_processes,
     {first_takes_six, second_takes_five, third_takes_four},
     nothing_is_held,
     3,
     false},
    {"two sweepers",
     one_is_dead,
     {clears_the_first, second_gives_and_takes, clears_what_is_left_over},
     only_the_second_holds,
     3,
     false},
    {"a sweeper and a newcomer",
     one_is_dead,
     {clears_the_first, claims_the_first, second_gives_and_takes},
     the_newcomer_holds_his_own,
     3,
     false},
    {"one who is taken for dead",
     one_is_dead,
     {first_changes_while_swept, clears_the_first, second_gives_and_takes},
     first_is_empty,
     3,
     false},
    {"a cap",
     a_container_of_two,
     {first_within_cap, second_within_cap, third_beside_it},
     the_third_holds,
     3,
     false},
    {"a cap that is never reached",
     a_container_that_has_room,
     {the_third_is_not_refused, three_pass_from_first_to_second},
     all_hold,
     4,
     false},
    {"a view of a container",
     a_container_that_has_room,
     {what_they_hold_is_of_one_moment, three_pass_from_first_to_second},
     seven_are_held,
     4,
     false},
    {"slots that are looked at",
     two_of_four_are_free,
     {lowers, claims_the_third},
     the_third_is_seen,
     5,
     false},
    {"a total that is wrong", total_is_rubbish, {mends, first_gives_two, mends}, it_can_be_mended, 3, true},
};

int main(void) {
  usage->magic = TESSERA_USAGE_MAGIC;
#ifdef __SANITIZE_THREAD__ /* knows nothing of coroutines, and there are no threads */
  (void)scenarios;
  (void)play_in_every_order;
#else
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) play_in_every_order(&scenarios[i]);
#endif
  puts("account: ok");
}
