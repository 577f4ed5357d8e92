/* SPDX-License-Identifier: Apache-2.0
 *
 * fakegpu-ctl: makes, shows and resets the state that stands for the kernel driver and its cards, and makes
 * them fail.
 */
#define _GNU_SOURCE
#include "fakegpu_ctl.h"
#include "inventory.h"
#include "timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int usage(void) {
  fputs(
      "usage: fakegpu-ctl init STATE INVENTORY           make STATE/state with the cards of the inventory\n"
      "       fakegpu-ctl show STATE                     cards, processes, device time\n"
      "       fakegpu-ctl reset STATE                    forget peaks, device time, errors, faults, "
      "strangers\n",
      stderr);
  fputs(faults_usage, stderr);
  return 2;
}

int failed(const char *what, int error) {
  fprintf(stderr, "fakegpu-ctl: %s: %s\n", what, strerror(error));
  return 1;
}

static int initialise(const char *directory, const char *path) {
  char message[256];
  struct state *image = calloc(1, sizeof *image);
  FILE *file = image == NULL ? NULL : fopen(path, "re");
  if (file == NULL) {
    free(image);
    return failed(path, errno);
  }
  bool good = inventory_read(file, image, message, sizeof message);
  fclose(file);
  int result = 0;
  if (!good) {
    fprintf(stderr, "fakegpu-ctl: %s: %s\n", path, message);
    result = 1;
  } else {
    int error = state_create(directory, image);
    if (error != 0) result = failed(directory, error);
  }
  free(image);
  return result;
}

int attach(const char *directory) {
  if (setenv("FAKEGPU_DIR", directory, 1) != 0) return errno;
  return member_join(SLOT_NVML);
}

static void show_card(const struct state *state, uint32_t card) {
  const struct card_config *config = &state->cards[card];
  const struct card_state *dynamic = &state->dynamic[card];
  printf("%s %u  %s  %s  minor %u  pci %04x:%02x:%02x.0  numa %d\n",
         config->parent == 0 ? "card" : "instance", card, config->uuid, config->name, config->minor,
         config->pci_domain, config->pci_bus, config->pci_device, config->numa_node);
  printf("        memory %llu of %llu bytes, peak %llu; busy %.3f s\n",
         (unsigned long long)dynamic->used_bytes, (unsigned long long)config->memory_bytes,
         (unsigned long long)dynamic->peak_bytes, (double)dynamic->busy_ns * 1e-9);
  if (dynamic->stranger_bytes != 0)
    printf("        %llu bytes used by strangers\n", (unsigned long long)dynamic->stranger_bytes);
  if (dynamic->lost != LOSS_NONE)
    printf("        lost%s\n", dynamic->lost == LOSS_GONE ? ", and not found by who starts now" : "");
  if (dynamic->xid != 0) printf("        XID %u\n", dynamic->xid);
}

static void show_units(const struct state *state) {
  for (uint32_t card = 0; card < state->driver.card_count; card++) {
    show_card(state, card);
    for (uint32_t index = 0; index < state->driver.instance_count; index++)
      if (unit_card(state, unit_of_instance(index)) == card) show_card(state, unit_of_instance(index));
  }
}

static void show_process(const struct state *state, uint32_t index) {
  const struct slot *slot = &state->slots[index];
  int pid = 0;
  slot_owner(index, &pid);
  for (uint32_t card = 0; card < FAKEGPU_UNITS; card++) {
    if (slot->contexts[card] == 0 && slot->used_bytes[card] == 0 && slot->launches[card] == 0) continue;
    uint64_t busy = slot->queue[card] == 0 ? 0 : state->queues[slot->queue[card] - 1u].busy_ns;
    printf("process %d (%d inside) on card %u: %llu bytes, %u contexts, %llu launches, busy %.3f s  %s\n",
           pid, slot->pid, card, (unsigned long long)slot->used_bytes[card], slot->contexts[card],
           (unsigned long long)slot->launches[card], (double)busy * 1e-9, slot->name);
  }
}

static int show(const char *directory) {
  int error = attach(directory);
  if (error != 0) return failed(directory, error);
  struct state *state = member_state();
  state_lock();
  reap_dead();
  for (uint32_t unit = 0; unit < FAKEGPU_UNITS; unit++) timeline_advance(state, unit, clock_now());
  printf("driver %s, CUDA %u.%u; lock taken from the dead %u times\n", state->driver.version,
         state->driver.cuda_version / 1000, state->driver.cuda_version % 1000 / 10,
         atomic_load(&state->repairs));
  show_units(state);
  for (uint32_t index = 0; index < atomic_load(&state->slot_end); index++)
    if (state->slots[index].kind == SLOT_CUDA) show_process(state, index);
  state_unlock();
  return 0;
}

static int reset(const char *directory) {
  int error = attach(directory);
  if (error != 0) return failed(directory, error);
  struct state *state = member_state();
  state_lock();
  reap_dead();
  for (uint32_t card = 0; card < FAKEGPU_UNITS; card++) {
    struct card_state *dynamic = &state->dynamic[card];
    dynamic->peak_bytes = dynamic->used_bytes;
    dynamic->busy_ns = 0;
    dynamic->xid = 0;
    dynamic->action = 0;
    dynamic->lost = LOSS_NONE;
    dynamic->stranger_bytes = 0;
    memset(dynamic->ecc_errors, 0, sizeof dynamic->ecc_errors);
    memset(dynamic->windows, 0, sizeof dynamic->windows);
  }
  atomic_store(&state->repairs, 0);
  fault_set(state, 0, 0, 0, 0);
  state_unlock();
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "init") == 0) return initialise(argv[2], argv[3]);
  if (argc == 3 && strcmp(argv[1], "show") == 0) return show(argv[2]);
  if (argc == 3 && strcmp(argv[1], "reset") == 0) return reset(argv[2]);
  int status = argc < 3 ? STATUS_USAGE : faults_command(argc, argv);
  return status == STATUS_USAGE ? usage() : status;
}
