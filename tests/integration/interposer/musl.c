/* SPDX-License-Identifier: Apache-2.0
 *
 * Says whether a library can be loaded, and ends with a status of its own. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
  void *found = count > 1 ? dlopen(words[1], RTLD_NOW) : NULL;
  printf("%s\n", found != NULL ? "loaded" : "not loaded");
  return 7;
}
