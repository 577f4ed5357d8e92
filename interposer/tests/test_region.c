/* SPDX-License-Identifier: Apache-2.0
 *
 * The usage region without CUDA: exact between threads and processes, whoever dies. */
#include "region.h"
#include "region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"
#include "atomics.h"
#include "check.h"
#include "clock.h"
#include "usage.h"

#define PIECE TESSERA_GRANULE /* the least that is counted */
#define LIMIT (1000000u * PIECE)

static char path[] = "/tmp/tessera-usage-XXXXXX";

static void make_file(void) {
  static struct tessera_usage usage;
  int file = mkstemp(path);
  usage.magic = TESSERA_USAGE_MAGIC;
  usage.version = TESSERA_USAGE_VERSION;
  usage.size = sizeof usage;
  usage.slots = TESSERA_SLOTS;
  CHECK(write(file, &usage, sizeof usage) == sizeof usage);
  close(file);
}

static bool take(struct region *region, uint64_t bytes, uint64_t limit) {
  return region_reserve(region, REGION_MEMORY, bytes, limit, REGION_NO_CAP);
}

static void give(struct region *region, uint64_t bytes) { region_release(region, REGION_MEMORY, bytes); }

static struct region opened(void) {
  struct region region;
  memset(&region, 0, sizeof region);
  region.file = -1;
  CHECK_EQUAL(region_open(&region, path), 0);
  return region;
}

/* Runs in a process of its own; its exit status must be 0. */
static pid_t start(void (*body)(struct region *)) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  struct region region = opened();
  body(&region);
  _exit(0);
}

static void finish(pid_t pid) {
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK_EQUAL(status, 0);
}

static void reserve_once(struct region *region) {
  CHECK(take(region, PIECE, LIMIT));
  give(region, PIECE);
}

static void test_the_limit_is_exact(struct region *region) {
  CHECK(take(region, LIMIT - PIECE, LIMIT));
  CHECK(!take(region, 2 * PIECE, LIMIT));
  CHECK(!take(region, PIECE + 1, LIMIT));
  CHECK(take(region, PIECE, LIMIT + PIECE - 1));
  CHECK(!take(region, PIECE, LIMIT + PIECE - 1));
  CHECK(!take(region, UINT64_MAX, LIMIT));
  CHECK(!take(region, UINT64_MAX, UINT64_MAX));
  CHECK_EQUAL(region_used(region), LIMIT);
  CHECK_EQUAL(region_slot(region)->refused, 5);
  give(region, LIMIT);
  CHECK_EQUAL(region_used(region), 0);
  CHECK_EQUAL(usage_peak(region->usage), LIMIT);
}

static void reserve_the_last(struct region *region) {
  CHECK(take(region, PIECE, UINT64_MAX));
  CHECK(!take(region, 1, UINT64_MAX));
  give(region, PIECE);
}

/* What the head has no bits for is refused; all that it has are used. */
static void test_the_most_that_can_be_counted(struct region *region) {
  const uint64_t most = UINT64_C(1) << 45;
  CHECK(!take(region, most, UINT64_MAX));
  CHECK(take(region, most - PIECE, UINT64_MAX));
  CHECK(!take(region, PIECE, UINT64_MAX));
  CHECK_EQUAL(region_used(region), most - PIECE);
  give(region, PIECE);
  finish(start(reserve_the_last)); /* enters ours in our slot */
  CHECK_EQUAL(load_relaxed(&region_slot(region)->bytes), most - 2 * PIECE);
  CHECK_EQUAL(region_used(region), most - 2 * PIECE);
  give(region, most - 2 * PIECE);
  CHECK_EQUAL(region_used(region), 0);
  store_relaxed(&region->usage->peak_memory_bytes, 0u);
}

/* What is no multiple of a granule takes up a whole one for the process, not one each time. */
static void test_odd_sizes(struct region *region) {
  for (int i = 0; i < 5; i++) CHECK(take(region, 100, LIMIT));
  CHECK_EQUAL(region_used(region), PIECE);
  CHECK(take(region, 100, LIMIT));
  CHECK_EQUAL(region_used(region), 2 * PIECE);
  for (int i = 0; i < 6; i++) give(region, 100);
  CHECK_EQUAL(region_used(region), 0);
}

static void test_a_cap_is_over_the_processes_of_a_container(struct region *region) {
  uint64_t total = 0;
  region->container = 7;
  store_relaxed(&region_slot(region)->container, 7u);
  CHECK(region_reserve(region, REGION_CONTEXTS, 300 * PIECE, LIMIT, 1000 * PIECE));
  CHECK(region_reserve(region, REGION_MODULES, 200 * PIECE, LIMIT, 1000 * PIECE));
  CHECK_EQUAL(region_slot(region)->context_bytes, 300 * PIECE);
  CHECK_EQUAL(region_slot(region)->module_bytes, 200 * PIECE);
  CHECK(!region_reserve(region, REGION_MEMORY, 501 * PIECE, LIMIT, 1000 * PIECE));
  CHECK(region_reserve(region, REGION_MEMORY, 500 * PIECE, LIMIT, 1000 * PIECE));
  CHECK_EQUAL(region_used_by_container(region), 1000 * PIECE);
  /* Another container's part counts towards the limit alone. */
  store_relaxed(&region_slot(region)->container, 8u);
  CHECK_EQUAL(region_used_by_container(region), 0);
  CHECK(region_reserve(region, REGION_MEMORY, 1000 * PIECE, LIMIT, 1000 * PIECE));
  CHECK(!region_reserve(region, REGION_MEMORY, PIECE, 2000 * PIECE, 1000 * PIECE));
  CHECK_EQUAL(region_used(region), 2000 * PIECE);
  store_relaxed(&region_slot(region)->container, 0u);
  region->container = 0;
  region_release(region, REGION_CONTEXTS, 300 * PIECE);
  region_release(region, REGION_MODULES, 200 * PIECE);
  region_release(region, REGION_MEMORY, 1500 * PIECE);
  for (int part = 0; part < REGION_PARTS; part++) total += atomic_load(&region->held[part]);
  CHECK_EQUAL(total, 0);
  CHECK_EQUAL(region_used(region), 0);
}

/* What "the driver" holds: shared by all processes, changed between reserve and release. */
static uint64_t *truth;

static struct region *racing;
static int racing_rounds;
static void *race(void *argument) {
  for (int i = 0; i < racing_rounds; i++) {
    if (!take(racing, 300000 * PIECE, LIMIT)) continue;
    CHECK(__atomic_add_fetch(truth, 300000 * PIECE, __ATOMIC_SEQ_CST) <= LIMIT);
    CHECK(__atomic_sub_fetch(truth, 300000 * PIECE, __ATOMIC_SEQ_CST) <= LIMIT);
    give(racing, 300000 * PIECE);
  }
  return argument;
}

static void race_in_threads(struct region *region) {
  pthread_t threads[4];
  racing = region;
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, race, NULL) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_EQUAL(atomic_load(&region->held[REGION_MEMORY]), 0);
  CHECK_EQUAL(usage_held(region->usage, (uint32_t)(region_slot(region) - region->usage->process)), 0);
}

static void yield(void) { sched_yield(); }

static void race_in_processes(struct region *region, int rounds) {
  pid_t pids[4];
  racing_rounds = rounds;
  for (int i = 0; i < 4; i++) pids[i] = start(race_in_threads);
  for (int i = 0; i < 4; i++) finish(pids[i]);
  CHECK_EQUAL(region_used(region), 0);
  CHECK_EQUAL(*truth, 0);
  CHECK(usage_peak(region->usage) <= LIMIT);
}

static void test_races_end_at_zero(struct region *region) { race_in_processes(region, 3000); }

/* The first calls of a process's threads come together, while others come and go; each operation is
   interrupted at each of its steps. */
static void test_races_while_registering(struct region *region) {
  account_step = yield;
  for (int i = 0; i < 40; i++) race_in_processes(region, 20);
  account_step = NULL;
}

static void hold_all(struct region *region) {
  CHECK(take(region, LIMIT, LIMIT));
  for (;;) pause();
}

static void wait_for_memory(const struct region *region, uint64_t bytes) {
  for (int i = 0; i < 5000 && usage_total(region->usage) != bytes; i++) usleep(1000);
  CHECK_EQUAL(usage_total(region->usage), bytes);
}

static void test_the_memory_of_the_dead_is_back_at_once(struct region *region) {
  pid_t pid = start(hold_all);
  wait_for_memory(region, LIMIT);
  CHECK(!take(region, 1, LIMIT));
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  CHECK(take(region, LIMIT, LIMIT));
  give(region, LIMIT);
}

/* All slots look used, since their owners are dead: each is somebody's again, and what they held is not
   counted. */
static void test_the_slots_of_the_dead_are_taken_where_there_are_no_others(void) {
  struct region region = opened();
  struct tessera_usage *usage = region.usage;
  for (uint32_t i = 0; i < TESSERA_SLOTS; i++)
    usage->process[i] = (struct tessera_process){
        .start_ns = 1, .bytes = 10 * PIECE, .waiting = 1, .launches = 7, .short_ns = 7};
  usage->slots_high = TESSERA_SLOTS;
  usage->sums = (uint64_t)TESSERA_SLOTS * 10 << TESSERA_TOTAL_SHIFT | 10; /* the head is slot 0's */
  usage->swept_ns = clock_now() + 1000000000u; /* as if somebody had just looked for the dead */
  CHECK(region_slot(&region) != NULL);
  usage->process[9].start_ns = 0; /* who wanted to clear it has died himself */
  usage->swept_ns = 0;
  CHECK_EQUAL(usage_total(usage), (TESSERA_SLOTS - 1) * 10 * PIECE);
  CHECK_EQUAL(region_slot(&region)->waiting, 0); /* begins anew */
  CHECK_EQUAL(region_slot(&region)->launches + region_slot(&region)->short_ns, 0);
  CHECK(take(&region, LIMIT, LIMIT));
  CHECK_EQUAL(usage_total(usage), LIMIT);
  CHECK_EQUAL(usage->slots_high, 1); /* nobody looks at slots any more that nobody uses */
  give(&region, LIMIT);
  close(region.file);
  munmap(usage, sizeof *usage);
}

/* Whatever a tenant has written into the sums, the first refusal mends it, and nothing goes below zero. */
static void test_a_wrong_total_is_mended(struct region *region) {
  CHECK(take(region, 1000 * PIECE, LIMIT));
  region->usage->sums += (uint64_t)5 << TESSERA_TOTAL_SHIFT;
  CHECK(take(region, LIMIT - 1000 * PIECE, LIMIT));
  CHECK_EQUAL(region_used(region), LIMIT);
  region->usage->sums -= (uint64_t)5 << TESSERA_TOTAL_SHIFT;
  give(region, LIMIT);
  CHECK_EQUAL(region_used(region), 0);
  store_relaxed(&region->usage->peak_memory_bytes, 0u);
}

static void test_a_slot_lost_with_its_descriptor_is_taken_again(struct region *region) {
  CHECK(take(region, 1000 * PIECE, LIMIT));
  close(region->file); /* as a program does that closes everything */
  store_relaxed(&region->usage->swept_ns, 0u);
  pid_t pid = start(reserve_once);
  finish(pid); /* has swept: our slot looked dead */
  CHECK_EQUAL(usage_total(region->usage), 0);
  CHECK(take(region, 500 * PIECE, LIMIT));
  CHECK_EQUAL(region_used(region), 1500 * PIECE);
  give(region, 1500 * PIECE);
  CHECK_EQUAL(region_used(region), 0);
}

static void test_a_foreign_file_under_our_number_is_not_touched(struct region *region) {
  int number = region->file, other = open("/dev/null", O_RDWR);
  close(number);
  CHECK_EQUAL(dup2(other, number), number);
  CHECK(take(region, 10 * PIECE, LIMIT));
  pid_t pid = start(reserve_once);
  finish(pid);
  CHECK(!take(region, LIMIT, LIMIT)); /* sweeps, so looks at the file */
  CHECK(region->file != number);
  CHECK_EQUAL(fcntl(number, F_GETFD) >= 0, 1);
  give(region, 10 * PIECE);
  close(number);
  close(other);
}

static void test_a_child_closes_no_foreign_file(struct region *region) {
  int number = region_file(region), other = open("/dev/null", O_RDWR);
  CHECK_EQUAL(dup2(other, number), number);
  pid_t pid = fork();
  if (pid == 0) {
    region_after_fork(region);
    CHECK(fcntl(number, F_GETFD) >= 0);
    _exit(0);
  }
  finish(pid);
  CHECK(region_file(region) != number); /* with the lock */
  close(number);
  close(other);
}

static void test_a_forked_child_is_a_process_of_its_own(struct region *region) {
  CHECK(take(region, 400 * PIECE, LIMIT));
  pid_t pid = fork();
  if (pid == 0) {
    atomic_store(&region->lock.word, 1); /* as if a thread that isn't here had had it */
    region_after_fork(region);
    CHECK(take(region, 100 * PIECE, LIMIT));
    CHECK_EQUAL(region_used(region), 500 * PIECE);
    _exit(0);
  }
  finish(pid);
  CHECK(!take(region, LIMIT, LIMIT));
  CHECK_EQUAL(region_used(region), 400 * PIECE);
  give(region, 400 * PIECE);
}

static void test_bad_files(void) {
  struct region region;
  char bad[] = "/tmp/tessera-bad-XXXXXX";
  CHECK_EQUAL(region_open(&region, "/nonexistent/usage"), ENOENT);
  int file = mkstemp(bad);
  CHECK_EQUAL(region_open(&region, bad), EINVAL);
  CHECK(ftruncate(file, sizeof(struct tessera_usage)) == 0);
  CHECK_EQUAL(region_open(&region, bad), EINVAL);
  static const struct tessera_usage foreign = {
      .magic = TESSERA_USAGE_MAGIC, .version = 1, .size = sizeof foreign, .slots = TESSERA_SLOTS};
  CHECK(pwrite(file, &foreign, sizeof foreign, 0) == sizeof foreign);
  CHECK_EQUAL(region_open(&region, bad), EPROTO); /* its processes count under a lock */
  close(file);
  unlink(bad);
}

int main(void) {
  make_file();
  truth = mmap(NULL, sizeof *truth, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(truth != MAP_FAILED);
  test_bad_files();
  test_the_slots_of_the_dead_are_taken_where_there_are_no_others();
  struct region region = opened();
  test_the_limit_is_exact(&region);
  test_the_most_that_can_be_counted(&region);
  test_odd_sizes(&region);
  test_a_cap_is_over_the_processes_of_a_container(&region);
  test_races_end_at_zero(&region);
  test_races_while_registering(&region);
  test_the_memory_of_the_dead_is_back_at_once(&region);
  test_a_wrong_total_is_mended(&region);
  test_a_slot_lost_with_its_descriptor_is_taken_again(&region);
  test_a_foreign_file_under_our_number_is_not_touched(&region);
  test_a_child_closes_no_foreign_file(&region);
  test_a_forked_child_is_a_process_of_its_own(&region);
  unlink(path);
  puts("region: ok");
}
