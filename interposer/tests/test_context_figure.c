/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may take a figure over, and what makes it doubtful. */
#include "context_figure.h"

#include <pthread.h>

#include "check.h"

#define MI (UINT64_C(1) << 20)
#define KIND 4711u
#define OTHER 1234567u

static uint64_t word;

/* A word that believes in so many bytes. */
static void believe(uint64_t bytes, bool by_process) {
  word = 0;
  context_figure_measured(&word, KIND, bytes, by_process);
  context_figure_measured(&word, KIND, bytes, by_process);
}

static void test_two_who_measure_the_same_are_believed(void) {
  uint64_t bytes = 0;
  word = 0;
  CHECK(!context_figure_read(&word, KIND).known && !context_figure_take(&word, KIND, &bytes));
  CHECK_EQUAL(context_figure_measured(&word, KIND, 40 * MI + 1, true), 40 * MI + 512);
  struct context_figure figure = context_figure_read(&word, KIND);
  CHECK(figure.known && !figure.believed && figure.by_process);
  CHECK_EQUAL(figure.bytes, 40 * MI + 512);
  CHECK(!context_figure_take(&word, KIND, &bytes));
  CHECK_EQUAL(context_figure_measured(&word, KIND, 40 * MI + 1, true), 40 * MI + 512);
  CHECK(context_figure_take(&word, KIND, &bytes));
  CHECK_EQUAL(bytes, 40 * MI + 512);
}

static void test_a_context_may_take_nothing(void) {
  uint64_t bytes = 1;
  believe(0, true);
  CHECK(context_figure_take(&word, KIND, &bytes));
  CHECK_EQUAL(bytes, 0);
}

static void test_one_of_many_measures_all_the_same(void) {
  uint64_t bytes;
  uint32_t measures = 0;
  believe(40 * MI, true);
  for (int i = 0; i < 640; i++) measures += !context_figure_take(&word, KIND, &bytes);
  CHECK_EQUAL(measures, 10);
  CHECK(context_figure_read(&word, KIND).believed);
}

static void test_another_result_begins_anew(void) {
  believe(40 * MI, true);
  CHECK_EQUAL(context_figure_measured(&word, KIND, 56 * MI, true), 56 * MI);
  struct context_figure figure = context_figure_read(&word, KIND);
  CHECK(figure.known && !figure.believed);
  CHECK_EQUAL(figure.bytes, 56 * MI);
}

/* By the card's free memory: a neighbour has allocated meanwhile. */
static void test_one_odd_result_is_a_neighbours(void) {
  believe(40 * MI, false);
  CHECK_EQUAL(context_figure_measured(&word, KIND, 90 * MI, false), 40 * MI);
  CHECK(!context_figure_read(&word, KIND).believed);
  CHECK_EQUAL(context_figure_measured(&word, KIND, 40 * MI, false), 40 * MI);
  CHECK(context_figure_read(&word, KIND).believed);
}

static void test_two_odd_results_are_not(void) {
  believe(40 * MI, false);
  context_figure_measured(&word, KIND, 90 * MI, false);
  CHECK_EQUAL(context_figure_measured(&word, KIND, 90 * MI, false), 90 * MI);
  CHECK_EQUAL(context_figure_read(&word, KIND).bytes, 90 * MI);
}

static void test_kinds_know_nothing_of_each_other(void) {
  uint64_t bytes;
  believe(40 * MI, true);
  CHECK(!context_figure_read(&word, OTHER).known && !context_figure_take(&word, OTHER, &bytes));
  CHECK(!context_figure_read(&word, 0).known);
  context_figure_doubt(&word, OTHER);
  CHECK(context_figure_read(&word, KIND).believed);
  CHECK_EQUAL(context_figure_measured(&word, OTHER, 40 * MI, true), 40 * MI);
  CHECK(!context_figure_read(&word, OTHER).believed && !context_figure_read(&word, KIND).known);
}

static void test_who_is_not_shown_makes_the_next_ones_measure_otherwise(void) {
  believe(40 * MI, true);
  context_figure_doubt(&word, KIND);
  struct context_figure figure = context_figure_read(&word, KIND);
  CHECK(figure.known && !figure.believed && !figure.by_process);
  CHECK_EQUAL(figure.bytes, 40 * MI);
}

static void test_what_does_not_fit_is_not_noted(void) {
  word = 0;
  CHECK_EQUAL(context_figure_measured(&word, KIND, UINT64_C(1) << 40, true), UINT64_C(1) << 40);
  CHECK_EQUAL(word, 0);
}

/* Every kind's contexts have a size of their own: nobody ever gets another's. */
static void *many_processes(void *kind_of_thread) {
  uint32_t kind = *(uint32_t *)kind_of_thread;
  for (int i = 0; i < 20000; i++) {
    uint64_t bytes = kind * MI;
    if (!context_figure_take(&word, kind, &bytes)) context_figure_measured(&word, kind, kind * MI, true);
    CHECK_EQUAL(bytes, kind * MI);
  }
  return NULL;
}

static void test_it_changes_as_one(void) {
  pthread_t threads[4];
  uint32_t kinds[] = {1, 1, 2, 3};
  word = 0;
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many_processes, &kinds[i]);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  test_two_who_measure_the_same_are_believed();
  test_a_context_may_take_nothing();
  test_one_of_many_measures_all_the_same();
  test_another_result_begins_anew();
  test_one_odd_result_is_a_neighbours();
  test_two_odd_results_are_not();
  test_kinds_know_nothing_of_each_other();
  test_who_is_not_shown_makes_the_next_ones_measure_otherwise();
  test_what_does_not_fit_is_not_noted();
  test_it_changes_as_one();
  return 0;
}
