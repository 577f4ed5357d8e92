/* SPDX-License-Identifier: Apache-2.0
 *
 * The container's name out of lines of /proc/self/mountinfo. */
#include "container.h"

#include <string.h>

#include "check.h"

#define POD "0f8e2b1c-5d6a-4e3f-9b7a-1c2d3e4f5a6b"
#define BEFORE "612 598 259:1 "
#define AFTER " /dev/termination-log rw,relatime - ext4 /dev/root rw,discard"

static void test_the_name_is_found(void) {
  struct container first = {0}, second = {0};
  CHECK_EQUAL(
      container_of_mount(BEFORE "/var/lib/kubelet/pods/" POD "/containers/trainer/0a1b2c3d" AFTER, &first),
      1);
  CHECK(strcmp(first.name, "trainer") == 0);
  /* The kubelet's directory as a file system of its own; another start of the same container. */
  CHECK_EQUAL(container_of_mount(BEFORE "/pods/" POD "/containers/trainer/ffffffff" AFTER, &second), 1);
  CHECK_EQUAL(first.tag, second.tag);
  CHECK_EQUAL(container_of_mount(BEFORE "/pods/" POD "/containers/trainer/00000000" AFTER, &second), 1);
  /* A second name makes it ambiguous. */
  CHECK_EQUAL(container_of_mount(BEFORE "/pods/" POD "/containers/other/00000000" AFTER, &second), -1);
}

static void test_other_lines_say_nothing(void) {
  static const char *const lines[] = {
      "",
      "1",
      "1 2 3",
      BEFORE "/ / rw",
      BEFORE "/var/lib/kubelet/pods/" POD "/etc-hosts" AFTER,
      BEFORE "/var/lib/kubelet/pods/" POD "/containers/trainer/0a1b2c3" AFTER,
      BEFORE "/var/lib/kubelet/pods/" POD "/containers/trainer/0a1b2c3g" AFTER,
      BEFORE "/var/lib/kubelet/pods/" POD "/containers//0a1b2c3d" AFTER,
      BEFORE "/var/lib/kubelet/pods/" POD "/volumes/trainer/0a1b2c3d" AFTER,
      BEFORE "/var/lib/kubelet/pods/some-pod/containers/trainer/0a1b2c3d" AFTER,
      BEFORE "/containers/trainer/0a1b2c3d" AFTER,
      BEFORE "trainer/0a1b2c3d" AFTER,
      BEFORE
      "/pods/" POD
      "/containers/a-name-that-is-longer-than-the-sixty-three-characters-of-a-dns-label/0a1b2c3d" AFTER,
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    struct container container = {0};
    CHECK_EQUAL(container_of_mount(lines[i], &container), 0);
    CHECK_EQUAL(container.name[0], 0);
  }
}

static void test_who_has_no_name_has_the_tag_of_the_nameless(void) {
  struct container first, second;
  CHECK(!container_find(&first) && !container_find(&second)); /* not in a container of the kubelet's here */
  CHECK(first.tag != 0 && first.tag == second.tag && first.name[0] == '\0');
}

int main(void) {
  test_the_name_is_found();
  test_other_lines_say_nothing();
  test_who_has_no_name_has_the_tag_of_the_nameless();
  puts("container: ok");
  return 0;
}
