/* SPDX-License-Identifier: Apache-2.0
 *
 * nvidia-smi of the fake driver: the parts that people and scripts use. It reads all through NVML.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>

static struct smi smi;

static const char *value_of(const char *argument, const char *option) {
  size_t length = strlen(option);
  return strncmp(argument, option, length) == 0 ? argument + length : NULL;
}

static int usage(FILE *out) {
  fputs(
      "usage: nvidia-smi\n"
      "       nvidia-smi -L | --list-gpus\n"
      "       nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]\n"
      "       nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]\n"
      "       nvidia-smi --version\n",
      out);
  return out == stdout ? 0 : 1;
}

static int print_version(void) {
  smi_read(&smi);
  printf(
      "NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\nCUDA Version        : "
      "%d.%d\n",
      smi.driver_version, smi.nvml_version, smi.driver_version, smi.cuda_version / 1000,
      smi.cuda_version % 1000 / 10);
  return 0;
}

int main(int argc, char **argv) {
  const char *cards = NULL, *processes = NULL, *format = NULL;
  bool list = false;
  for (int index = 1; index < argc; index++) {
    const char *argument = argv[index], *value = NULL;
    if (strcmp(argument, "-h") == 0 || strcmp(argument, "--help") == 0) return usage(stdout);
    if (strcmp(argument, "--version") == 0) return print_version();
    if (strcmp(argument, "-L") == 0 || strcmp(argument, "--list-gpus") == 0)
      list = true;
    else if ((value = value_of(argument, "--query-gpu=")) != NULL)
      cards = value;
    else if ((value = value_of(argument, "--query-compute-apps=")) != NULL)
      processes = value;
    else if ((value = value_of(argument, "--format=")) != NULL)
      format = value;
    else {
      printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n");
      return usage(stderr);
    }
  }
  smi_read(&smi);
  if (cards != NULL) return smi_query_cards(&smi, cards, format);
  if (processes != NULL) return smi_query_processes(&smi, processes, format);
  if (list)
    smi_print_list(&smi);
  else
    smi_print_table(&smi);
  return 0;
}
