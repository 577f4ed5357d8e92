/* SPDX-License-Identifier: Apache-2.0
 *
 * A process is stopped at each single instruction of what it does to the usage file, one after the other, and
 * the judge, another process of the grant, goes on meanwhile: everything adds up, to the granule, and all
 * that is left is to be had, no more. Then the stopped one is killed, goes on, or goes on where nothing is
 * left. Built from the library's sources.
 *
 *   steps FILE SCENE END FIRST EACH   from which instruction on, and every how many; prints how many there
 *   are */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "region.h"
#include "usage.h"

#define PIECE TESSERA_GRANULE
#define LIMIT (100u * PIECE)
#define OWN (10u * PIECE) /* what the judge always holds */
#define MOST_NS 100000000u    /* of work */
#define HANGS_NS 10000000000u /* in all: on a busy machine it is not always the judge's turn */

static struct region judge;
static const char *path;

#define MUST(condition)                                                                \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition), exit(1); \
    }                                                                                  \
  } while (0)

static uint64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct region opened(void) {
  struct region region;
  memset(&region, 0, sizeof region);
  MUST(region_open(&region, path) == 0);
  return region;
}

static bool take(struct region *region, uint64_t bytes, uint64_t limit) {
  return region_reserve(region, REGION_MEMORY, bytes, limit, REGION_NO_CAP);
}

static void give(struct region *region, uint64_t bytes) { region_release(region, REGION_MEMORY, bytes); }

/* --- what is looked at instruction by instruction ------------------------------------------------------ */

/* `before` and `after` are what it holds; in between it may also hold `between`. */
static const struct scene {
  const char *name;
  void (*prepare)(struct region *);
  bool (*act)(struct region *); /* false: refused */
  uint64_t before, between, after;
  uint64_t dead; /* what one holds who has died before */
} *scene;

static void comes_in(struct region *region) { MUST(region_slot(region) != NULL); }
static void does_nothing(struct region *region) { (void)region; }

static void holds_two(struct region *region) { MUST(take(region, 2 * PIECE, LIMIT)); }

/* As a program does that closes everything; then somebody sweeps. */
static void loses_its_slot(struct region *region) {
  MUST(take(region, 2 * PIECE, LIMIT));
  close(region->file);
}

static bool takes_and_gives(struct region *region) {
  if (!region_reserve(region, REGION_MODULES, 3 * PIECE, LIMIT, 50 * PIECE)) return false;
  region_release(region, REGION_MODULES, PIECE);
  return true;
}

static bool takes_one(struct region *region) { return take(region, PIECE, LIMIT); }

static bool gives_both(struct region *region) {
  give(region, 2 * PIECE);
  return true;
}

/* More than is left before the dead are found. */
static bool takes_what_the_dead_had(struct region *region) {
  return take(region, LIMIT - OWN - 2 * PIECE, LIMIT);
}

static const struct scene scenes[] = {
    {"change", comes_in, takes_and_gives, 0, 3 * PIECE, 2 * PIECE, 0},
    {"release", holds_two, gives_both, 2 * PIECE, 0, 0, 0},
    {"register", does_nothing, takes_one, 0, 0, PIECE, 0},
    {"register-late", does_nothing, takes_one, 0, 0, PIECE, 7 * PIECE},
    {"lost", loses_its_slot, takes_one, 0, 2 * PIECE, 3 * PIECE, 0},
    {"sweep", holds_two, takes_what_the_dead_had, 2 * PIECE, 2 * PIECE, LIMIT - OWN, 30 * PIECE},
};

static pid_t started(void) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  struct region region = opened();
  scene->prepare(&region);
  MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
  raise(SIGSTOP);
  bool done = scene->act(&region);
  raise(SIGSTOP);
  _exit(done ? 10 : 11);
}

static void one_dies(uint64_t bytes) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    struct region region = opened();
    MUST(take(&region, bytes, LIMIT));
    raise(SIGKILL);
  }
  MUST(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

/* --- the judge ---------------------------------------------------------------------------------------- */

static uint64_t sum_of_slots(void) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < usage_slots_high(judge.usage); i++) sum += usage_held(judge.usage, i);
  return sum;
}

/* Takes all that is left, and no more is to be had. The stopped one holds so much. */
static void take_the_rest(uint64_t held) {
  uint64_t began = now(CLOCK_MONOTONIC), worked = now(CLOCK_PROCESS_CPUTIME_ID);
  MUST(!take(&judge, LIMIT - OWN - held + PIECE, LIMIT));
  MUST(take(&judge, LIMIT - OWN - held, LIMIT));
  MUST(!take(&judge, PIECE, LIMIT));
  MUST(now(CLOCK_PROCESS_CPUTIME_ID) - worked < MOST_NS && now(CLOCK_MONOTONIC) - began < HANGS_NS);
  MUST(usage_total(judge.usage) == LIMIT && sum_of_slots() == LIMIT);
}

static void give_the_rest(uint64_t held) { give(&judge, LIMIT - OWN - held); }

/* What the stopped one holds, by what is left; it must be one of what it may. */
static uint64_t held_by_the_stopped(void) {
  uint64_t total;
  MUST(!take(&judge, LIMIT, LIMIT)); /* whoever is dead is swept */
  total = usage_total(judge.usage);
  MUST(total == sum_of_slots() && total >= OWN);
  uint64_t held = total - OWN;
  MUST(held == scene->before || held == scene->between || held == scene->after);
  return held;
}

static void step(pid_t pid, bool *at_end) {
  int status;
  MUST(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0);
  MUST(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
  *at_end = WSTOPSIG(status) == SIGSTOP;
  MUST(*at_end || WSTOPSIG(status) == SIGTRAP);
}

/* Until it stops by itself; then it may end. Returns whether it was refused. */
static bool refused_in_the_end(pid_t pid, bool at_end) {
  int status;
  if (!at_end) {
    MUST(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
    MUST(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
  }
  uint64_t total = usage_total(judge.usage);
  MUST(total == sum_of_slots() && total <= LIMIT);
  MUST(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
  MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
  MUST(WEXITSTATUS(status) == 10 || WEXITSTATUS(status) == 11);
  return WEXITSTATUS(status) == 11;
}

static void finish(pid_t pid, bool at_end, const char *end) {
  uint64_t held = held_by_the_stopped();
  take_the_rest(held);
  if (strcmp(end, "full") == 0) {
    bool refused = refused_in_the_end(pid, at_end);
    MUST(refused == (held < scene->after));
    give_the_rest(held);
    return;
  }
  give_the_rest(held);
  if (strcmp(end, "kill") == 0) {
    MUST(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
  } else {
    MUST(!refused_in_the_end(pid, at_end));
  }
}

/* Stopped after so many instructions; whether that was the end. */
static bool stopped_at(long instruction, const char *end) {
  int status;
  bool at_end = false;
  if (scene->dead != 0) one_dies(scene->dead);
  pid_t pid = started();
  MUST(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
  if (strcmp(scene->name, "lost") == 0) MUST(!take(&judge, LIMIT, LIMIT)); /* it looks dead */
  for (long i = 0; i < instruction && !at_end; i++) step(pid, &at_end);
  finish(pid, at_end, end);
  MUST(take(&judge, LIMIT - OWN, LIMIT)); /* whatever it held is back at once */
  give(&judge, LIMIT - OWN);
  MUST(usage_peak(judge.usage) == LIMIT);
  return at_end;
}

int main(int count, char **words) {
  if (count != 6) return 64;
  path = words[1];
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (strcmp(words[2], scenes[i].name) == 0) scene = &scenes[i];
  if (scene == NULL) return 64;
  judge = opened();
  MUST(take(&judge, OWN, LIMIT));
  long instruction = atol(words[4]);
  while (!stopped_at(instruction, words[3])) instruction += atol(words[5]);
  printf("%ld\n", instruction);
  return 0;
}
