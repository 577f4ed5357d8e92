/* SPDX-License-Identifier: Apache-2.0
 *
 * The state file stands for the kernel driver and the cards: what every process of a node shares.
 *
 * A fixed, versioned struct, mapped shared by libcuda, libnvidia-ml and fakegpu-ctl of all containers. A
 * process (strictly: one library in a process) owns slot i while it holds the POSIX record lock on byte i of
 * the file, so the kernel ends the ownership with the process, whatever its PID namespace, and F_GETLK names
 * the owner's pid in the asker's own namespace. Everything under "dynamic" changes only under `lock`, whose
 * word names its holder: a waiter that finds the holder dead takes the lock over and repairs what the dead
 * left half done.
 *
 * Nobody may close a descriptor of the state file before the process ends: that would drop its record locks.
 */
#ifndef FAKEGPU_STATE_H
#define FAKEGPU_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKEGPU_MAGIC 0x554b4146u /* "FAKU" */
#define FAKEGPU_VERSION 3u
#define FAKEGPU_CARDS 16u     /* whole ones */
#define FAKEGPU_INSTANCES 48u /* MIG instances, of all cards together */
#define FAKEGPU_UNITS (FAKEGPU_CARDS + FAKEGPU_INSTANCES)
#define FAKEGPU_SLOTS 4096u
#define FAKEGPU_QUEUES 2048u
#define FAKEGPU_RING 1024u                  /* kernels that a queue remembers */
#define FAKEGPU_PENDING (FAKEGPU_RING / 2u) /* launches that may wait; one more blocks, as on a real card */
#define FAKEGPU_WINDOWS 8u
#define FAKEGPU_WINDOW_NS 166666667ull /* utilization is sampled six times a second */
#define FAKEGPU_EVENTS 256u            /* that NVML remembers; who is further behind misses some */

/* A unit is what has memory and time of its own: unit i < FAKEGPU_CARDS is card i, the others are MIG
 * instances. A compute instance is a unit even where several share a GPU instance's memory: here each has its
 * own. */

struct card_config {
  char name[96];
  char uuid[48];   /* "GPU-" and 36 characters */
  char serial[32]; /* empty: the card has none */
  char architecture[24];
  char brand[24];
  uint64_t memory_bytes;
  uint64_t reserved_bytes; /* the driver's own, never free */
  uint32_t minor;          /* /dev/nvidia<minor> */
  uint32_t sms;
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t pci_domain, pci_bus, pci_device;
  uint32_t pci_device_id; /* device << 16 | vendor */
  uint32_t pci_subsystem_id;
  int32_t numa_node;      /* -1: none */
  uint32_t nvlink_domain; /* cards with the same one but 0 are joined by NVLink */
  uint32_t clock_mhz;
  uint32_t memory_clock_mhz;
  uint32_t bus_width_bits;
  uint32_t l2_bytes;
  uint32_t power_limit_watts;
  uint32_t ecc;            /* memory errors are counted and reported */
  uint32_t no_memory_info; /* memory shared with the host: NVML gives no figure */
  uint32_t no_events;      /* NVML can't wait for anything about it */
  /* MIG */
  uint32_t mig;          /* of a card: in MIG mode, its instances are the devices */
  uint32_t parent;       /* of an instance: index of its card + 1 */
  uint32_t gpu_instance; /* ids, unique within the card and within the GPU instance */
  uint32_t compute_instance;
  uint32_t slices, compute_slices; /* compute slices of the GPU instance, and of this compute instance */
  char profile[24];                /* "1g.10gb" */
};

struct driver_config {
  char version[32];      /* "570.124.06" */
  uint32_t cuda_version; /* 12080 */
  uint32_t card_count;
  uint32_t instance_count; /* at units FAKEGPU_CARDS and up */
  uint32_t copy_gib_s; /* GiB that copies and fills within a card move in a second; 0: they take no time */
  uint64_t context_bytes;     /* what a context takes of its card */
  uint64_t module_bytes;      /* what a loaded module takes */
  uint64_t granularity_bytes; /* allocations are rounded up to it */
  uint64_t time_slice_ns; /* longest turn of a process while others wait; 0: a kernel is never interrupted */
  uint64_t kernel_ns;     /* device time of a kernel that names none */
  uint64_t context_ns;    /* how long it takes to make a context, to load a module */
  uint64_t module_ns;
};

struct window {
  uint64_t index; /* which window since boot */
  uint64_t busy_ns;
};

struct card_state {
  uint64_t used_bytes; /* sum over slots; reserved_bytes not included */
  uint64_t peak_bytes;
  uint64_t stranger_bytes; /* used by processes that nobody here can see */
  /* timeline: kernels one after another, queues (processes) take turns */
  uint64_t clock_ns;                    /* everything before is settled */
  uint64_t slice_start_ns;              /* when the running turn began */
  uint64_t preempt_ns;                  /* when it ends at the latest; UINT64_MAX while nobody else waits */
  uint32_t running;                     /* queue index + 1; 0: idle */
  uint32_t waiting_first, waiting_last; /* queue index + 1 */
  uint32_t lost;                        /* enum loss */
  uint32_t xid;                         /* the last critical event's code; 0: none since reset */
  uint32_t action;                      /* 0: the card can't tell; else its recovery action + 1 */
  uint64_t ecc_errors[2];               /* corrected, uncorrected */
  uint64_t busy_ns;
  struct window windows[FAKEGPU_WINDOWS];
};

enum loss {
  LOSS_NONE,
  LOSS_SILENT, /* still listed, but every call about it answers GPU_IS_LOST */
  LOSS_GONE,   /* the same, and who starts NVML or CUDA now does not find it at all */
};

/* What NVML reports to whoever waits for it. Event number n is in ring[n % FAKEGPU_EVENTS]. */
struct card_event {
  uint64_t type; /* NVML's bit */
  uint64_t data; /* XID */
  uint32_t card;
  uint32_t gpu_instance, compute_instance; /* UINT32_MAX: of the whole card */
  uint32_t reserved;
};

struct events {
  uint64_t newest; /* numbers begin at 1 */
  struct card_event ring[FAKEGPU_EVENTS];
};

/* How NVML misbehaves, node-wide or (cards != 0) only in calls about the cards of the bit set. */
struct nvml_fault {
  _Atomic uint32_t delay_ms; /* before every call */
  _Atomic uint32_t hang;     /* calls block until this is 0 */
  _Atomic uint32_t fail;     /* the answer of every call; 0: their own */
  _Atomic uint32_t cards;
};

struct kernel {
  uint64_t duration_ns;
  uint64_t end_ns;
};

/* The kernels of one process on one card, in launch order. Sequence numbers begin at 1. */
struct queue {
  uint32_t owner; /* slot index + 1; 0: free */
  uint32_t card;
  uint32_t next; /* queue index + 1, while it waits for its turn */
  uint32_t reserved;
  uint64_t launched;     /* sequence number of the newest kernel */
  uint64_t finished;     /* of the newest finished one */
  uint64_t remaining_ns; /* of the kernel finished + 1 */
  uint64_t busy_ns;
  struct window windows[FAKEGPU_WINDOWS];
  struct kernel ring[FAKEGPU_RING];
};

enum slot_kind { SLOT_FREE, SLOT_NVML, SLOT_CUDA };

struct slot {
  _Atomic uint64_t tag; /* who claimed it: process token << 32 | generation */
  uint32_t kind;
  int32_t pid; /* in its own PID namespace; for people */
  char name[64];
  uint64_t used_bytes[FAKEGPU_UNITS];
  uint64_t launches[FAKEGPU_UNITS];
  uint32_t contexts[FAKEGPU_UNITS];
  uint32_t queue[FAKEGPU_UNITS]; /* queue index + 1 */
};

struct state {
  uint32_t magic;
  uint32_t version;
  uint64_t size;
  struct driver_config driver;
  struct card_config cards[FAKEGPU_UNITS];
  /* dynamic */
  _Atomic uint64_t lock; /* 0, or slot index + 1 | generation << 16 */
  _Atomic uint64_t reaped_ns;
  _Atomic uint32_t slot_end; /* slots from here on were never used */
  _Atomic uint32_t repairs;  /* how often the lock was taken from the dead */
  _Atomic uint32_t news;     /* grows with every event and change of `fault`; who waits sleeps on it */
  struct nvml_fault fault;
  struct events events;
  struct card_state dynamic[FAKEGPU_UNITS];
  struct slot slots[FAKEGPU_SLOTS];
  struct queue queues[FAKEGPU_QUEUES];
};

/* state_file.c: all return 0 or an errno value. */
int state_directory(char *path, unsigned long size); /* FAKEGPU_DIR, else /run/fakegpu */
int state_create(const char *directory, const struct state *image);
int state_map(const char *directory, struct state **mapped, int *descriptor);

/* membership.c: this process (this library in it) as a member. */
int member_join(enum slot_kind kind); /* 0 or errno; again is harmless, also after a fork */
struct state *member_state(void);     /* NULL before the first successful join */
struct slot *member_slot(void);
uint32_t member_index(void);
bool member_forked(void); /* a child of a process that had joined, and has not joined itself */
int slot_owner(uint32_t index,
               int *pid); /* 1: alive, pid in our namespace (0: not visible from here); 0: dead */

/* lock.c: never while holding it already. */
void state_lock(void);
void state_unlock(void);
void lock_take_as(struct state *state, uint32_t slot,
                  uint64_t tag); /* for membership.c, before it has joined */

/* reap.c */
void reap_dead(void);           /* under the lock: drop what belonged to dead processes */
void reap_dead_of_few(void);    /* the same; of hundreds, at most every 10 ms */
void reap_dead_sometimes(void); /* the same, at most once a millisecond over all processes */
void slot_clear(struct state *state, uint32_t index);
void state_repair(struct state *state); /* under the lock: recompute all that is derived */

/* news.c: sleeping until something is told. */
void news_tell(struct state *state);
void news_wait(struct state *state, uint32_t seen, uint64_t until_ns);            /* may return early */
void event_add(struct state *state, uint32_t unit, uint64_t type, uint64_t data); /* under the lock; tells */

/* unit.c */
uint32_t unit_of_instance(uint32_t index);                    /* 0 .. instance_count - 1 */
uint32_t unit_card(const struct state *state, uint32_t unit); /* the card that it is part of, or is */
bool unit_is_lost(const struct state *state, uint32_t unit);  /* without the lock */

/* card_memory.c, under the lock: bytes of this process on a card. */
bool memory_take(uint32_t card, uint64_t bytes); /* false: the card is full (after reaping) */
void memory_give(uint32_t card, uint64_t bytes);
uint64_t memory_free(uint32_t card);
uint64_t memory_rounded(uint64_t bytes); /* up to the granularity; 0 if it overflows */

uint64_t clock_now(void); /* CLOCK_MONOTONIC, ns */
void clock_sleep(uint64_t ns);

#endif
