/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *placeholder(enum option_type type) {
  static const char *const names[] = {"TEXT", "N", "SIZE", "F"};
  return type < OPTION_SWITCH ? names[type] : "";
}

static void usage(const char *program, const struct option_rule *rules, const char *purpose, int status) {
  FILE *out = status == 0 ? stdout : stderr;
  fprintf(out, "usage: %s [OPTIONS]\n%s\n\n", program, purpose);
  for (const struct option_rule *rule = rules; rule->name != NULL; rule++)
    fprintf(out, "  %s %-6s %s\n", rule->name, placeholder(rule->type), rule->help);
  exit(status);
}

/* Bytes: a number with K, M, G or T, and an optional "i" (all binary). */
static bool read_size(const char *text, unsigned long long *bytes) {
  char *rest = NULL;
  unsigned long long number = strtoull(text, &rest, 10);
  if (rest == text || text[0] == '-') return false;
  static const char units[] = "KMGT";
  const char *unit = *rest == '\0' ? NULL : strchr(units, *rest);
  unsigned shift = 0;
  if (*rest != '\0') {
    if (unit == NULL || (rest[1] != '\0' && strcmp(rest + 1, "i") != 0)) return false;
    shift = 10u * (unsigned)(unit - units + 1);
  }
  *bytes = number << shift;
  return *bytes >> shift == number;
}

static bool store(const struct option_rule *rule, const char *text) {
  char *rest = NULL;
  switch (rule->type) {
    case OPTION_TEXT:
      *(const char **)rule->target = text;
      return true;
    case OPTION_NUMBER:
      *(long *)rule->target = strtol(text, &rest, 10);
      return rest != text && *rest == '\0';
    case OPTION_SIZE:
      return read_size(text, rule->target);
    case OPTION_REAL:
      *(double *)rule->target = strtod(text, &rest);
      return rest != text && *rest == '\0';
    default:
      return false;
  }
}

void read_arguments(int argc, char **argv, const struct option_rule *rules, const char *purpose) {
  for (int index = 1; index < argc; index++) {
    if (strcmp(argv[index], "--help") == 0) usage(argv[0], rules, purpose, 0);
    const struct option_rule *rule = rules;
    while (rule->name != NULL && strcmp(rule->name, argv[index]) != 0) rule++;
    if (rule->name == NULL) {
      fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[index]);
      usage(argv[0], rules, purpose, 2);
    }
    if (rule->type == OPTION_SWITCH) {
      *(bool *)rule->target = true;
      continue;
    }
    index++;
    if (index == argc || !store(rule, argv[index])) {
      fprintf(stderr, "%s: %s needs a value of the form %s\n", argv[0], rule->name, placeholder(rule->type));
      usage(argv[0], rules, purpose, 2);
    }
  }
}
