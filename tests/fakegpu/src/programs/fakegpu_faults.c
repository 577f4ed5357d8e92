/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong on real nodes, on command: critical and memory errors, cards off the bus, an NVML that is
 * slow, hangs or fails, memory that nobody here can see.
 */
#define _GNU_SOURCE
#include "fakegpu_ctl.h"
#include "inventory.h"
#include "nvml_types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char faults_usage[] =
    "       CARD is an index, or a uuid (GPU-…, MIG-…):\n"
    "       fakegpu-ctl xid STATE CARD CODE            report a critical error; 79: the card is lost\n"
    "       fakegpu-ctl ecc STATE CARD single|double   report a memory error\n"
    "       fakegpu-ctl lose STATE CARD [--gone]       off the bus; --gone: not even listed any more\n"
    "       fakegpu-ctl find STATE CARD                it is back, without errors\n"
    "       fakegpu-ctl action STATE CARD NUMBER       what it needs, as NVML counts; 0: nothing\n"
    "       fakegpu-ctl stranger STATE CARD BYTES      memory used by processes that nobody sees; 0: none\n"
    "       fakegpu-ctl nvml STATE [--card CARD] --delay MS | --hang | --fail CODE | --ok\n"
    "                                                  every NVML call is late, blocks, or answers CODE\n";

/* NVIDIA's numbers for a card that answers no more, and for one that needs another thing done than before. */
enum { XID_OFF_THE_BUS = 79, XID_RECOVERY_ACTION_CHANGED = 154 };

static bool read_number(const char *text, uint32_t *number) {
  char *rest = NULL;
  errno = 0;
  unsigned long value = strtoul(text, &rest, 10);
  *number = (uint32_t)value;
  return errno == 0 && rest != text && *rest == '\0' && value <= UINT32_MAX;
}

/* The unit that CARD names; false where there is none. */
static bool find_unit(const struct state *state, const char *text, uint32_t *unit) {
  if (read_number(text, unit)) return *unit < state->driver.card_count;
  for (*unit = 0; *unit < FAKEGPU_UNITS; ++*unit)
    if (state->cards[*unit].uuid[0] != '\0' && strcasecmp(state->cards[*unit].uuid, text) == 0) return true;
  return false;
}

static int report_xid(struct state *state, uint32_t unit, const char *text) {
  uint32_t code = 0;
  if (!read_number(text, &code) || code == 0) return failed(text, EINVAL);
  state_lock();
  state->dynamic[unit].xid = code;
  if (code == XID_OFF_THE_BUS) state->dynamic[unit_card(state, unit)].lost = LOSS_SILENT;
  event_add(state, unit, NVML_EVENT_XID_CRITICAL, code);
  state_unlock();
  return 0;
}

static int report_ecc(struct state *state, uint32_t unit, const char *kind) {
  bool twice = strcmp(kind, "double") == 0;
  if (!twice && strcmp(kind, "single") != 0) return failed(kind, EINVAL);
  if (state->cards[unit].ecc == 0) return failed("the card has no ecc = 1", ENOTSUP);
  state_lock();
  state->dynamic[unit_card(state, unit)].ecc_errors[twice]++;
  event_add(state, unit, twice ? NVML_EVENT_DOUBLE_BIT_ECC : NVML_EVENT_SINGLE_BIT_ECC, 0);
  state_unlock();
  return 0;
}

static int set_loss(struct state *state, uint32_t unit, enum loss loss) {
  struct card_state *card = &state->dynamic[unit_card(state, unit)];
  state_lock();
  card->lost = loss;
  if (loss == LOSS_NONE) card->xid = 0;
  news_tell(state);
  state_unlock();
  return 0;
}

/* As a card that can tell reports it: XID 154 says that the answer is another one now. */
static int set_action(struct state *state, uint32_t unit, const char *text) {
  uint32_t action = 0;
  if (!read_number(text, &action) || action == UINT32_MAX) return failed(text, EINVAL);
  state_lock();
  state->dynamic[unit].action = action + 1;
  event_add(state, unit, NVML_EVENT_XID_CRITICAL, XID_RECOVERY_ACTION_CHANGED);
  state_unlock();
  return 0;
}

static int set_stranger(struct state *state, uint32_t unit, const char *text) {
  uint64_t bytes = 0;
  if (!read_bytes(text, &bytes)) return failed(text, EINVAL);
  state_lock();
  reap_dead();
  struct card_state *dynamic = &state->dynamic[unit];
  bool fits = bytes <= memory_free(unit) + dynamic->stranger_bytes;
  if (fits) dynamic->stranger_bytes = bytes;
  state_unlock();
  return fits ? 0 : failed("the card has not that much free", ENOSPC);
}

void fault_set(struct state *state, uint32_t delay_ms, uint32_t hang, uint32_t fail, uint32_t cards) {
  atomic_store(&state->fault.cards, cards);
  atomic_store(&state->fault.delay_ms, delay_ms);
  atomic_store(&state->fault.fail, fail);
  atomic_store(&state->fault.hang, hang);
  news_tell(state);
}

/* fakegpu-ctl nvml STATE …, from argv[3] on. */
static int set_fault(struct state *state, int argc, char **argv) {
  uint32_t unit = 0, cards = 0, number = 0;
  int at = 3;
  if (argc > at + 2 && strcmp(argv[at], "--card") == 0) {
    if (!find_unit(state, argv[at + 1], &unit)) return failed(argv[at + 1], ENODEV);
    cards = 1u << unit_card(state, unit);
    at += 2;
  }
  if (at >= argc) return STATUS_USAGE;
  const char *what = argv[at], *value = at + 1 < argc ? argv[at + 1] : NULL;
  if (value == NULL && strcmp(what, "--ok") == 0)
    fault_set(state, 0, 0, 0, 0);
  else if (value == NULL && strcmp(what, "--hang") == 0)
    fault_set(state, 0, 1, 0, cards);
  else if (value != NULL && strcmp(what, "--delay") == 0 && read_number(value, &number))
    fault_set(state, number, 0, 0, cards);
  else if (value != NULL && strcmp(what, "--fail") == 0 && read_number(value, &number) && number != 0)
    fault_set(state, 0, 0, number, cards);
  else
    return STATUS_USAGE;
  return 0;
}

static int card_command(struct state *state, int argc, char **argv) {
  const char *what = argv[1], *more = argc > 4 ? argv[4] : NULL;
  uint32_t unit = 0;
  if (!find_unit(state, argv[3], &unit)) return failed(argv[3], ENODEV);
  if (argc == 5 && strcmp(what, "xid") == 0) return report_xid(state, unit, more);
  if (argc == 5 && strcmp(what, "ecc") == 0) return report_ecc(state, unit, more);
  if (argc == 5 && strcmp(what, "action") == 0) return set_action(state, unit, more);
  if (argc == 5 && strcmp(what, "stranger") == 0) return set_stranger(state, unit, more);
  if (argc == 4 && strcmp(what, "find") == 0) return set_loss(state, unit, LOSS_NONE);
  if (argc == 4 && strcmp(what, "lose") == 0) return set_loss(state, unit, LOSS_SILENT);
  if (argc == 5 && strcmp(what, "lose") == 0 && strcmp(more, "--gone") == 0)
    return set_loss(state, unit, LOSS_GONE);
  return STATUS_USAGE;
}

int faults_command(int argc, char **argv) {
  static const char *const of_cards[] = {"xid", "ecc", "lose", "find", "action", "stranger"};
  bool nvml = strcmp(argv[1], "nvml") == 0, card = false;
  for (size_t index = 0; index < sizeof of_cards / sizeof *of_cards; index++)
    card = card || strcmp(argv[1], of_cards[index]) == 0;
  if ((!nvml && !card) || argc < 4) return STATUS_USAGE;
  int error = attach(argv[2]);
  if (error != 0) return failed(argv[2], error);
  return nvml ? set_fault(member_state(), argc, argv) : card_command(member_state(), argc, argv);
}
