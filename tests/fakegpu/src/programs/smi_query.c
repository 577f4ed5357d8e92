/* SPDX-License-Identifier: Apache-2.0
 *
 * nvidia-smi's CSV: a table of fields, for cards and for processes.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>

enum { STATUS_INVALID = 2, FIELDS = 32 };

struct line {
  const struct smi *smi;
  const struct smi_card *card;
  const struct smi_process *process; /* NULL in a query of cards */
};

struct field {
  const char *name;
  const char *unit; /* NULL: none */
  void (*print)(const struct line *line);
};

static void mebibytes(nvml_u64 bytes) { printf("%llu", bytes >> 20); }

static void print_index(const struct line *line) { printf("%u", line->card->index); }
static void print_name(const struct line *line) { fputs(line->card->name, stdout); }
static void print_uuid(const struct line *line) { fputs(line->card->uuid, stdout); }
static void print_serial(const struct line *line) { fputs(line->card->serial, stdout); }
static void print_bus(const struct line *line) { fputs(line->card->pci.bus_id, stdout); }
static void print_total(const struct line *line) { mebibytes(line->card->memory.total); }
static void print_used(const struct line *line) { mebibytes(line->card->memory.used); }
static void print_free(const struct line *line) { mebibytes(line->card->memory.free); }
static void print_busy(const struct line *line) { printf("%u", line->card->utilization.gpu); }
static void print_memory_busy(const struct line *line) { printf("%u", line->card->utilization.memory); }
static void print_driver(const struct line *line) { fputs(line->smi->driver_version, stdout); }
static void print_count(const struct line *line) { printf("%u", line->smi->card_count); }
static void print_temperature(const struct line *line) { printf("%u", line->card->celsius); }
static void print_power(const struct line *line) { printf("%.2f", line->card->milliwatts / 1000.0); }
static void print_state(const struct line *line) { printf("P%u", line->card->performance_state); }
static void print_mig(const struct line *line) {
  fputs(!line->card->has_mig ? "[N/A]" : line->card->in_mig_mode ? "Enabled" : "Disabled", stdout);
}
static void print_capability(const struct line *line) {
  printf("%d.%d", line->card->compute_major, line->card->compute_minor);
}
static void print_pid(const struct line *line) { printf("%u", line->process->pid); }
static void print_process_name(const struct line *line) { fputs(line->process->name, stdout); }
static void print_process_memory(const struct line *line) { mebibytes(line->process->used_bytes); }

static const struct field card_fields[] = {
    {"index", NULL, print_index},
    {"name", NULL, print_name},
    {"gpu_name", NULL, print_name},
    {"uuid", NULL, print_uuid},
    {"gpu_uuid", NULL, print_uuid},
    {"serial", NULL, print_serial},
    {"count", NULL, print_count},
    {"pci.bus_id", NULL, print_bus},
    {"memory.total", "MiB", print_total},
    {"memory.used", "MiB", print_used},
    {"memory.free", "MiB", print_free},
    {"utilization.gpu", "%", print_busy},
    {"utilization.memory", "%", print_memory_busy},
    {"driver_version", NULL, print_driver},
    {"compute_cap", NULL, print_capability},
    {"temperature.gpu", NULL, print_temperature},
    {"power.draw", "W", print_power},
    {"pstate", NULL, print_state},
    {"mig.mode.current", NULL, print_mig},
    {NULL, NULL, NULL},
};

static const struct field process_fields[] = {
    {"pid", NULL, print_pid},
    {"process_name", NULL, print_process_name},
    {"name", NULL, print_process_name},
    {"used_memory", "MiB", print_process_memory},
    {"used_gpu_memory", "MiB", print_process_memory},
    {"gpu_uuid", NULL, print_uuid},
    {"gpu_name", NULL, print_name},
    {"gpu_bus_id", NULL, print_bus},
    {NULL, NULL, NULL},
};

struct query {
  const struct field *fields[FIELDS];
  int count;
  bool header, units;
};

static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; *at != '\0';) {
    size_t size = strcspn(at, ",");
    if (size == length && strncmp(at, word, length) == 0) return true;
    at += size + (at[size] == ',');
  }
  return false;
}

/* False, after a message like nvidia-smi's own: a field or the format is not known. */
static bool parse(struct query *query, const struct field *known, const char *names, const char *format) {
  if (format == NULL || !has_word(format, "csv")) {
    puts("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.");
    return false;
  }
  query->header = !has_word(format, "noheader");
  query->units = !has_word(format, "nounits");
  for (const char *at = names; *at != '\0';) {
    size_t size = strcspn(at, ",");
    const struct field *field = known;
    while (field->name != NULL && (strlen(field->name) != size || strncmp(field->name, at, size) != 0))
      field++;
    if (field->name == NULL || query->count == FIELDS) {
      printf("Field \"%.*s\" is not a valid field to query.\n", (int)size, at);
      return false;
    }
    query->fields[query->count++] = field;
    at += size + (at[size] == ',');
    while (*at == ' ') at++;
  }
  return query->count > 0;
}

static void print_header(const struct query *query) {
  if (!query->header) return;
  for (int index = 0; index < query->count; index++) {
    const struct field *field = query->fields[index];
    printf("%s%s", index == 0 ? "" : ", ", field->name);
    if (field->unit != NULL && query->units) printf(" [%s]", field->unit);
  }
  putchar('\n');
}

static void print_line(const struct query *query, const struct line *line) {
  for (int index = 0; index < query->count; index++) {
    const struct field *field = query->fields[index];
    if (index > 0) fputs(", ", stdout);
    field->print(line);
    if (field->unit != NULL && query->units) printf(" %s", field->unit);
  }
  putchar('\n');
}

int smi_query_cards(const struct smi *smi, const char *fields, const char *format) {
  struct query query = {0};
  if (!parse(&query, card_fields, fields, format)) return STATUS_INVALID;
  print_header(&query);
  for (unsigned index = 0; index < smi->card_count; index++)
    print_line(&query, &(struct line){.smi = smi, .card = &smi->cards[index]});
  return 0;
}

int smi_query_processes(const struct smi *smi, const char *fields, const char *format) {
  struct query query = {0};
  if (!parse(&query, process_fields, fields, format)) return STATUS_INVALID;
  print_header(&query);
  for (unsigned index = 0; index < smi->card_count; index++)
    for (unsigned process = 0; process < smi->cards[index].process_count; process++)
      print_line(&query, &(struct line){.smi = smi,
                                        .card = &smi->cards[index],
                                        .process = &smi->cards[index].processes[process]});
  return 0;
}
