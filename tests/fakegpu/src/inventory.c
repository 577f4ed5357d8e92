/* SPDX-License-Identifier: Apache-2.0 */
#include "inventory.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum field_type { TEXT, NUMBER, SIGNED, BYTES, MICROSECONDS, MEBIBYTES, VERSION, CAPABILITY, PCI };

struct field {
  const char *key;
  enum field_type type;
  size_t offset;
  size_t size;
};

#define DRIVER(key, type, member) \
  {key, type, offsetof(struct driver_config, member), sizeof(((struct driver_config *)0)->member)}
#define CARD(key, type, member) \
  {key, type, offsetof(struct card_config, member), sizeof(((struct card_config *)0)->member)}

static const struct field driver_fields[] = {
    DRIVER("version", TEXT, version),
    DRIVER("cuda", VERSION, cuda_version),
    DRIVER("context", BYTES, context_bytes),
    DRIVER("module", BYTES, module_bytes),
    DRIVER("granularity", BYTES, granularity_bytes),
    DRIVER("time_slice_us", MICROSECONDS, time_slice_ns),
    DRIVER("kernel_us", MICROSECONDS, kernel_ns),
    DRIVER("copy_gib_s", NUMBER, copy_gib_s),
    DRIVER("context_us", MICROSECONDS, context_ns),
    DRIVER("module_us", MICROSECONDS, module_ns),
    {NULL, TEXT, 0, 0},
};

static const struct field card_fields[] = {
    CARD("name", TEXT, name),
    CARD("uuid", TEXT, uuid),
    CARD("serial", TEXT, serial),
    CARD("architecture", TEXT, architecture),
    CARD("brand", TEXT, brand),
    CARD("memory", BYTES, memory_bytes),
    CARD("reserved", BYTES, reserved_bytes),
    CARD("minor", NUMBER, minor),
    CARD("sms", NUMBER, sms),
    CARD("compute_capability", CAPABILITY, compute_major),
    CARD("pci", PCI, pci_domain),
    CARD("pci_device_id", NUMBER, pci_device_id),
    CARD("pci_subsystem_id", NUMBER, pci_subsystem_id),
    CARD("numa_node", SIGNED, numa_node),
    CARD("nvlink_domain", NUMBER, nvlink_domain),
    CARD("clock_mhz", NUMBER, clock_mhz),
    CARD("memory_clock_mhz", NUMBER, memory_clock_mhz),
    CARD("bus_width", NUMBER, bus_width_bits),
    CARD("l2", MEBIBYTES, l2_bytes),
    CARD("power_watts", NUMBER, power_limit_watts),
    CARD("ecc", NUMBER, ecc),
    CARD("no_memory_info", NUMBER, no_memory_info),
    CARD("no_events", NUMBER, no_events),
    CARD("mig", NUMBER, mig),
    {NULL, TEXT, 0, 0},
};

static const struct field mig_fields[] = {
    CARD("profile", TEXT, profile),
    CARD("uuid", TEXT, uuid),
    CARD("memory", BYTES, memory_bytes),
    CARD("sms", NUMBER, sms),
    CARD("gi", NUMBER, gpu_instance),
    CARD("ci", NUMBER, compute_instance),
    {NULL, TEXT, 0, 0},
};

/* Where the keys of the section that is being read belong. */
struct section {
  const struct field *fields;
  void *target;
};

bool read_bytes(const char *text, uint64_t *bytes) {
  static const char units[] = "KMGT";
  char *rest = NULL;
  errno = 0;
  unsigned long long number = strtoull(text, &rest, 0);
  if (errno != 0 || rest == text || !isdigit((unsigned char)text[0])) return false;
  unsigned shift = 0;
  if (*rest != '\0') {
    const char *unit = strchr(units, *rest);
    if (unit == NULL || rest[1] != 'i' || rest[2] != '\0') return false;
    shift = 10u * (unsigned)(unit - units + 1);
  }
  *bytes = (uint64_t)number << shift;
  return *bytes >> shift == number;
}

static bool store(void *target, const struct field *field, const char *text) {
  uint64_t number = 0;
  uint32_t first = 0, second = 0, third = 0;
  uint32_t *words = target;
  char extra = '\0';
  switch (field->type) {
    case TEXT:
      if (strlen(text) >= field->size) return false;
      memcpy(target, text, strlen(text) + 1);
      return true;
    case SIGNED:
      *(int32_t *)target = (int32_t)strtol(text, NULL, 0);
      return true;
    case VERSION:
      if (sscanf(text, "%u.%u%c", &first, &second, &extra) != 2) return false;
      words[0] = first * 1000u + second * 10u;
      return true;
    case CAPABILITY:
      if (sscanf(text, "%u.%u%c", &words[0], &words[1], &extra) != 2) return false;
      return true;
    case PCI:
      if (sscanf(text, "%x:%x:%x.0%c", &first, &second, &third, &extra) != 3) return false;
      words[0] = first;
      words[1] = second;
      words[2] = third;
      return true;
    default:
      break;
  }
  if (!read_bytes(text, &number)) return false;
  if (field->type == MICROSECONDS) number *= 1000u;
  if (field->size == sizeof(uint64_t)) {
    *(uint64_t *)target = number;
  } else {
    if (number > UINT32_MAX) return false;
    words[0] = (uint32_t)number;
  }
  return true;
}

static char *trimmed(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t length = strlen(text);
  while (length > 0 && isspace((unsigned char)text[length - 1])) text[--length] = '\0';
  return text;
}

static void begin_card(struct state *image) {
  struct card_config *card = &image->cards[image->driver.card_count];
  *card = (struct card_config){.minor = image->driver.card_count,
                               .numa_node = -1,
                               .clock_mhz = 1500,
                               .memory_clock_mhz = 5000,
                               .bus_width_bits = 384,
                               .l2_bytes = 40u << 20,
                               .power_limit_watts = 400};
  image->driver.card_count++;
}

/* An instance takes over what its card has said so far: the sections of instances follow that of their card.
 */
static const char *begin_instance(struct state *image, struct section *section) {
  if (image->driver.card_count == 0) return "[mig] before the first [card]";
  if (image->driver.instance_count == FAKEGPU_INSTANCES) return "too many MIG instances";
  const struct card_config *card = &image->cards[image->driver.card_count - 1];
  if (card->mig == 0) return "[mig] after a card without mig = 1";
  struct card_config *instance = &image->cards[FAKEGPU_CARDS + image->driver.instance_count];
  *instance = *card;
  instance->parent = image->driver.card_count;
  instance->mig = 0;
  instance->uuid[0] = '\0';
  instance->reserved_bytes = 0;
  image->driver.instance_count++;
  *section = (struct section){mig_fields, instance};
  return NULL;
}

/* "2g.20gb" is a GPU instance of two slices with one compute instance over both; "1c.2g.20gb" a compute
 * instance of one of them. */
static bool read_profile(struct card_config *instance) {
  unsigned memory = 0;
  uint32_t *compute = &instance->compute_slices, *slices = &instance->slices;
  if (sscanf(instance->profile, "%uc.%ug.%ugb", compute, slices, &memory) == 3) return *compute <= *slices;
  if (sscanf(instance->profile, "%ug.%ugb", slices, &memory) != 2) return false;
  *compute = *slices;
  return *slices > 0;
}

static const char *finish_instances(struct state *image) {
  for (uint32_t index = 0; index < image->driver.instance_count; index++) {
    struct card_config *instance = &image->cards[FAKEGPU_CARDS + index];
    size_t length = strlen(instance->name);
    if (!read_profile(instance)) return "a [mig] needs a profile such as 1g.10gb";
    if (strlen(instance->uuid) != 40 || strncmp(instance->uuid, "MIG-", 4) != 0)
      return "an instance's uuid must be MIG-<36 characters>";
    if (instance->memory_bytes == image->cards[instance->parent - 1].memory_bytes)
      return "a [mig] needs its own memory and sms";
    if (instance->gpu_instance > 14 || instance->compute_instance > 7) return "gi is 0 to 14, ci 0 to 7";
    if (snprintf(instance->name + length, sizeof instance->name - length, " MIG %s", instance->profile) >=
        (int)(sizeof instance->name - length))
      return "the name of a card with instances is too long";
  }
  return NULL;
}

static const char *check(const struct state *image) {
  if (image->driver.card_count == 0) return "no [card] section";
  if (image->driver.version[0] == '\0') return "[driver] names no version";
  if (image->driver.granularity_bytes == 0) return "granularity must not be 0";
  for (uint32_t index = 0; index < image->driver.card_count; index++) {
    const struct card_config *card = &image->cards[index];
    if (card->name[0] == '\0') return "a [card] has no name";
    if (strlen(card->uuid) != 40 || strncmp(card->uuid, "GPU-", 4) != 0)
      return "a card's uuid must be GPU-<36 characters>";
    if (card->memory_bytes == 0 || card->sms == 0 || card->compute_major == 0)
      return "a card needs memory, sms and compute_capability";
  }
  return NULL;
}

/* One line, already trimmed; NULL, or what is wrong with it. */
static const char *read_line(char *line, struct state *image, struct section *section) {
  if (line[0] == '\0' || line[0] == '#' || line[0] == ';') return NULL;
  if (strcmp(line, "[driver]") == 0) {
    *section = (struct section){driver_fields, &image->driver};
    return NULL;
  }
  if (strcmp(line, "[card]") == 0) {
    if (image->driver.card_count == FAKEGPU_CARDS) return "too many cards";
    begin_card(image);
    *section = (struct section){card_fields, &image->cards[image->driver.card_count - 1]};
    return NULL;
  }
  if (strcmp(line, "[mig]") == 0) return begin_instance(image, section);
  char *equals = strchr(line, '=');
  if (section->fields == NULL || equals == NULL)
    return "neither [driver], [card], [mig] nor key = value in one of them";
  *equals = '\0';
  const char *key = trimmed(line), *value = trimmed(equals + 1);
  for (const struct field *field = section->fields; field->key != NULL; field++)
    if (strcmp(field->key, key) == 0)
      return store((char *)section->target + field->offset, field, value)
                 ? NULL
                 : "this value does not fit this key";
  return "unknown key";
}

bool inventory_read(FILE *file, struct state *image, char *message, size_t size) {
  char line[512];
  struct section section = {NULL, NULL};
  image->magic = FAKEGPU_MAGIC;
  image->version = FAKEGPU_VERSION;
  image->size = sizeof *image;
  image->driver = (struct driver_config){
      .cuda_version = 12080, .granularity_bytes = 512, .time_slice_ns = 2000000, .kernel_ns = 10000};
  for (unsigned number = 1; fgets(line, sizeof line, file) != NULL; number++) {
    const char *wrong = read_line(trimmed(line), image, &section);
    if (wrong != NULL) {
      snprintf(message, size, "line %u: %s", number, wrong);
      return false;
    }
  }
  const char *wrong = check(image);
  if (wrong == NULL) wrong = finish_instances(image);
  if (wrong != NULL) snprintf(message, size, "%s", wrong);
  return wrong == NULL;
}
