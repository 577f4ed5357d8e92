/* SPDX-License-Identifier: Apache-2.0
 *
 * Virtual time for whole groups of processes: preloaded, it answers the clock and the sleeps of programs, of
 * the fake driver and of whatever stands between them. Computing takes no time (a look at the clock takes
 * CLOCK_NS), sleeping takes none of the real one: when a thread sleeps, the next one to wake goes on at its
 * own moment. One thread runs at a time, so what happens depends neither on the machine nor on its load.
 *
 *   FAKEGPU_TIME=FILE,RANK   the program is a member from its start on, at place RANK
 *   FAKEGPU_TIME=FILE,-      it only reads the clock, as does what a member starts with this
 *
 * The world stands still until somebody advances it (virtual_time.py): at a standstill its state can be read.
 * Futexes are waited for in virtual time too; a wake wakes every waiter, as a futex may. What blocks in
 * another way (a pipe, a contended pthread mutex) holds the world up, so members don't sleep while they hold
 * one. Other threads and forked children become members with their first sleep: until then they run beside.
 */
#define _GNU_SOURCE
#include "virtual_time.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define CLOCK_NS 100u      /* what a look at the clock takes */
#define YIELD_NS 5000u     /* what sched_yield takes: spinning is waiting in small steps */
#define TICK_NS 4000000u   /* CLOCK_MONOTONIC_COARSE moves so far at a time, at 250 Hz */
#define PATIENCE 1000000u  /* looks at a clock that others hold back; then it goes on without them */
#define LOOK_NS 200000000  /* real time after which a waiter looks whether the runner is dead */
#define THREADS 256
#define NEVER UINT64_MAX
#define NOBODY (-1)

struct thread {
  _Atomic uint32_t turn; /* futex: 1, go on */
  uint32_t used;
  int32_t pid;
  uint32_t futex; /* it waits for one */
  uint64_t wake_ns;
  uint64_t ran; /* number of its latest turn: of those due at once, the one that has waited longest goes on */
};

struct world {
  _Atomic uint64_t now_ns;
  uint64_t limit_ns;   /* the world stands still there */
  uint64_t horizon_ns; /* when somebody else is due, or the limit */
  uint64_t turns;
  _Atomic uint32_t running; /* thread + 1; 0: standstill */
  _Atomic uint32_t pauses;  /* futex: grows with every standstill */
  struct thread threads[THREADS];
};

static struct world *world;
static int file = -1;
static int32_t owner; /* the process that has opened it */
static __thread int self = NOBODY;
static __thread uint32_t looks;

/* The kernel itself: the C library's functions of these names are the ones below. */
/* NOLINTBEGIN(portability-no-assembler) */
static long kernel(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
#endif
}
/* NOLINTEND(portability-no-assembler) */

static void real_wait(_Atomic uint32_t *word, uint32_t seen) {
  struct timespec span = {.tv_sec = 0, .tv_nsec = LOOK_NS};
  kernel(SYS_futex, (long)word, FUTEX_WAIT, (long)seen, (long)&span, 0, 0);
}

static void real_wake(_Atomic uint32_t *word) { kernel(SYS_futex, (long)word, FUTEX_WAKE, THREADS, 0, 0, 0); }

static uint64_t real_now(void) {
  struct timespec now = {0};
  kernel(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0, 0, 0);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Record locks end with their process: byte 0 guards the world, byte 1 + i says that thread i's process
 * lives. */
static void lock_byte(long start, short type) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
  while (fcntl(file, F_SETLKW, &lock) != 0 && errno == EINTR) {
  }
}

static bool is_dead(int thread) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + thread, .l_len = 1};
  if (world->threads[thread].pid == owner) return false; /* own locks don't conflict */
  return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

static void guard(void) { lock_byte(0, F_WRLCK); }
static void unguard(void) { lock_byte(0, F_UNLCK); }

/* Who is due first, and when the next one after that is. */
static int first_due(uint64_t *second_ns) {
  int best = NOBODY;
  *second_ns = NEVER;
  for (int index = 0; index < THREADS; index++) {
    const struct thread *thread = &world->threads[index], *found = best == NOBODY ? NULL : &world->threads[best];
    if (thread->used == 0) continue;
    bool earlier = found == NULL || thread->wake_ns < found->wake_ns ||
                   (thread->wake_ns == found->wake_ns && thread->ran < found->ran);
    uint64_t behind = earlier ? (found == NULL ? NEVER : found->wake_ns) : thread->wake_ns;
    if (behind < *second_ns) *second_ns = behind;
    if (earlier) best = index;
  }
  return best;
}

/* Hands the turn to whoever is due, or stands still at the limit. Under the guard. */
static void hand_on(void) {
  uint64_t second = NEVER, now = atomic_load(&world->now_ns);
  int next = first_due(&second);
  uint64_t due = next == NOBODY ? NEVER : world->threads[next].wake_ns;
  if (next == NOBODY || due > world->limit_ns) {
    if (world->limit_ns > now) atomic_store(&world->now_ns, world->limit_ns);
    atomic_store(&world->running, 0);
    atomic_fetch_add(&world->pauses, 1);
    real_wake(&world->pauses);
    return;
  }
  struct thread *thread = &world->threads[next];
  if (due > now) atomic_store(&world->now_ns, due);
  thread->ran = ++world->turns;
  thread->futex = 0;
  world->horizon_ns = second < world->limit_ns ? second : world->limit_ns;
  atomic_store(&world->running, (uint32_t)next + 1u);
  atomic_store(&thread->turn, 1);
  if (next != self) real_wake(&thread->turn);
}

/* The turn of a dead process goes to the next one. */
static void bury(void) {
  guard();
  int runner = (int)atomic_load(&world->running) - 1;
  if (runner != NOBODY && is_dead(runner)) {
    world->threads[runner].used = 0;
    hand_on();
  }
  unguard();
}

static void await_turn(void) {
  struct thread *thread = &world->threads[self];
  while (atomic_load(&thread->turn) == 0) {
    real_wait(&thread->turn, 0);
    if (atomic_load(&thread->turn) == 0) bury();
  }
  atomic_store(&thread->turn, 0);
  looks = 0;
}

/* Becomes a member at a place (NOBODY: the last free one), and waits for its first turn. */
static bool join(int place) {
  guard();
  if (place == NOBODY)
    for (place = THREADS - 1; place > 0 && world->threads[place].used != 0;) place--;
  struct thread *thread = &world->threads[place];
  bool taken = thread->used != 0 && thread->pid != owner && !is_dead(place);
  if (!taken) {
    *thread = (struct thread){.used = 1, .pid = owner, .wake_ns = atomic_load(&world->now_ns)};
    self = place;
    lock_byte(1 + place, F_WRLCK);
  }
  unguard();
  if (!taken) await_turn();
  return !taken;
}

/* Sleeps until then, or until a futex is woken (true). */
static bool sleep_until(uint64_t wake_ns, bool futex) {
  if (self == NOBODY || owner != getpid()) {
    owner = getpid();
    self = NOBODY;
    if (!join(NOBODY)) return false;
  }
  struct thread *thread = &world->threads[self];
  guard();
  thread->wake_ns = wake_ns;
  thread->futex = futex;
  hand_on();
  unguard();
  await_turn();
  return thread->wake_ns != wake_ns;
}

static void wake_waiters(void) {
  uint64_t now = atomic_load(&world->now_ns);
  guard();
  for (int index = 0; index < THREADS; index++) {
    struct thread *thread = &world->threads[index];
    if (thread->used == 0 || thread->futex == 0) continue;
    thread->futex = 0;
    thread->wake_ns = now;
    world->horizon_ns = now;
  }
  unguard();
}

static uint64_t look(void) {
  uint64_t now = atomic_load_explicit(&world->now_ns, memory_order_relaxed);
  if (self == NOBODY || atomic_load(&world->running) != (uint32_t)self + 1u) return now;
  if (now + CLOCK_NS > world->horizon_ns && ++looks < PATIENCE) return now;
  atomic_store_explicit(&world->now_ns, now + CLOCK_NS, memory_order_relaxed);
  return now + CLOCK_NS;
}

static bool is_member(void) { return world != NULL && owner != 0; }

static bool is_virtual(clockid_t clock) {
  return world != NULL && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
                           clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME);
}

static uint64_t span_ns(const struct timespec *span) {
  return (uint64_t)span->tv_sec * 1000000000u + (uint64_t)span->tv_nsec;
}

/* What the C library would answer to a system call's result. */
static long answer(long result) {
  if (result >= 0 || result < -4095) return result;
  errno = (int)-result;
  return -1;
}

EXPORTED int clock_gettime(clockid_t clock, struct timespec *time) {
  if (!is_virtual(clock)) return (int)answer(kernel(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0));
  uint64_t now = look();
  if (clock == CLOCK_MONOTONIC_COARSE) now -= now % TICK_NS;
  *time = (struct timespec){.tv_sec = (time_t)(now / 1000000000u), .tv_nsec = (long)(now % 1000000000u)};
  return 0;
}

/* Returns the error's number, as clock_nanosleep does. */
EXPORTED int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
  if (!is_member() || (flags == TIMER_ABSTIME && !is_virtual(clock)))
    return (int)-kernel(SYS_clock_nanosleep, clock, flags, (long)time, (long)left, 0, 0);
  sleep_until(flags == TIMER_ABSTIME ? span_ns(time) : look() + span_ns(time), false);
  return 0;
}

EXPORTED int nanosleep(const struct timespec *time, struct timespec *left) {
  int error = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
  return error == 0 ? 0 : (int)answer(-error);
}

EXPORTED int usleep(useconds_t span) {
  struct timespec time = {.tv_sec = (time_t)(span / 1000000u), .tv_nsec = (long)(span % 1000000u) * 1000};
  return nanosleep(&time, NULL);
}

EXPORTED int sched_yield(void) {
  if (!is_member() || self == NOBODY) return (int)answer(kernel(SYS_sched_yield, 0, 0, 0, 0, 0, 0));
  sleep_until(look() + YIELD_NS, false);
  return 0;
}

static long futex(const long *arguments) {
  const _Atomic uint32_t *word = (const _Atomic uint32_t *)arguments[0];  // NOLINT(performance-no-int-to-ptr)
  const struct timespec *span = (const struct timespec *)arguments[3];    // NOLINT(performance-no-int-to-ptr)
  if ((arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
    wake_waiters();
    return kernel(SYS_futex, arguments[0], arguments[1], arguments[2], 0, 0, 0);
  }
  if (atomic_load(word) != (uint32_t)arguments[2]) return -EAGAIN;
  return sleep_until(span == NULL ? NEVER : look() + span_ns(span), true) ? 0 : -ETIMEDOUT;
}

EXPORTED long syscall(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (int index = 0; index < 6; index++) arguments[index] = va_arg(list, long);
  va_end(list);
  if (number == SYS_clock_nanosleep) {
    /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
    return answer(-clock_nanosleep((clockid_t)arguments[0], (int)arguments[1], (const void *)arguments[2], NULL));
  }
  long command = arguments[1] & FUTEX_CMD_MASK;
  if (number == SYS_futex && is_member() && (command == FUTEX_WAIT || command == FUTEX_WAKE))
    return answer(futex(arguments));
  return answer(kernel(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                       arguments[5]));
}

static bool open_world(const char *path) {
  int opened = open(path, O_RDWR | O_CLOEXEC);
  void *mapped = opened < 0 ? MAP_FAILED
                            : mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (mapped == MAP_FAILED) return false;
  file = opened;
  world = mapped;
  return true;
}

/* For who advances the world. It begins at the real clock, where the fake driver's state has begun. */
EXPORTED int virtual_time_create(const char *path) {
  int made = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made < 0 || ftruncate(made, sizeof *world) != 0) return errno;
  close(made);
  if (!open_world(path)) return errno;
  atomic_store(&world->now_ns, real_now());
  world->limit_ns = atomic_load(&world->now_ns);
  return 0;
}

EXPORTED uint64_t virtual_time_now(void) { return atomic_load(&world->now_ns); }

EXPORTED int virtual_time_members(void) {
  int count = 0;
  for (int index = 0; index < THREADS; index++) count += world->threads[index].used != 0 && !is_dead(index);
  return count;
}

EXPORTED int virtual_time_advance(uint64_t span, uint64_t patience_ns) {
  uint64_t give_up = real_now() + patience_ns;
  guard();
  world->limit_ns = atomic_load(&world->now_ns) + span;
  if (atomic_load(&world->running) == 0) hand_on();
  unguard();
  for (;;) {
    uint32_t seen = atomic_load(&world->pauses);
    if (atomic_load(&world->running) == 0) return 0;
    if (real_now() > give_up) return ETIMEDOUT;
    real_wait(&world->pauses, seen);
    bury();
  }
}

__attribute__((constructor)) static void begin(void) {
  const char *wish = getenv("FAKEGPU_TIME");
  char path[4096];
  int place = NOBODY;
  if (wish == NULL || sscanf(wish, "%4095[^,],%d", path, &place) < 1) return;
  if (!open_world(path) || place >= THREADS) {
    fprintf(stderr, "virtual time: can't use FAKEGPU_TIME=%s\n", wish);
    exit(1);
  }
  if (place < 0) return;
  owner = getpid();
  if (join(place)) return;
  fprintf(stderr, "virtual time: place %d in %s is taken\n", place, path);
  exit(1);
}

__attribute__((destructor)) static void end(void) {
  if (self == NOBODY || owner != getpid()) return;
  guard();
  world->threads[self].used = 0;
  if (atomic_load(&world->running) == (uint32_t)self + 1u) hand_on();
  unguard();
}
